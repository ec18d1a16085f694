package sink_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
)

// A set is the expected content of one or more files; see testdata/python/expect.py.
type set struct {
	Kind    string            `json:"kind"`
	Rows    int               `json:"rows"`
	Columns []string          `json:"columns"`
	Kinds   map[string]string `json:"kinds"`
	Values  map[string][]any  `json:"values"`
	Files   []file            `json:"files"`
}

type file struct {
	Path       string `json:"path"`
	Format     string `json:"format"`
	MinBatches int    `json:"min_batches"`
}

// TestInterop writes the edge samples in both formats and compares every value that pyarrow, DuckDB,
// Hugging Face datasets and this project's Python package read.
func TestInterop(t *testing.T) {
	t.Parallel()
	python := interpreter(t)
	dir := t.TempDir()
	runPython(t, python, filepath.Join("testdata", "python", "read_all.py"), writeJob(t, dir), filepath.Join(dir, "cache"))
}

func interpreter(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a Python with pyarrow, duckdb, datasets and torch, and half a minute: run without -short")
	}
	python := os.Getenv("ROLLOUT_PYTHON")
	if python == "" {
		python = filepath.Join("..", ".build", "venv", "bin", "python")
	}
	python, err := filepath.Abs(python)
	if err == nil {
		_, err = os.Stat(python)
	}
	if err != nil {
		t.Fatalf("no Python for this test: run make python, or set ROLLOUT_PYTHON (%v)", err)
	}
	return python
}

func runPython(t *testing.T, python string, args ...string) (out []byte) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), python, args...)
	cmd.Env = append(os.Environ(), "PYTHONPATH=python/src", "PYTHONDONTWRITEBYTECODE=1", "OMP_NUM_THREADS=1")
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%.200s: %v\n%s%s", strings.Join(args, " "), err, tail(out, 4000), tail(log.Bytes(), 4000))
	}
	return out
}

func tail(out []byte, n int) []byte { return out[max(0, len(out)-n):] }

func writeJob(t *testing.T, dir string) (path string) {
	t.Helper()
	meta := map[string]string{"note": "ünïcode"}
	var rows []sink.StoredRow
	var failures []sink.StoredFailure
	for _, s := range sinktest.Edge() {
		rows = append(rows, sinktest.Rows(s)...)
		failures = append(failures, failuresOf(s)...)
	}
	data, failed, raw := columns(t, "data", rows), columns(t, "failures", failures), columns(t, "data", rawRows())
	var runs []map[string]any // datasets that hold the data of set 0
	for _, format := range []sink.Format{sink.Parquet, sink.Arrow} {
		run := filepath.Join(dir, format.String())
		must(t, os.Mkdir(run, 0o777))
		runs = append(runs, map[string]any{"dir": run, "set": 0})
		sinktest.Write(t, run, sink.Config{Format: format, RowGroupTokens: 100_000, Meta: meta}, sinktest.Edge())
		log := readLog(t, run)
		for s := range log.Shards(sink.KindData) {
			data.Files = append(data.Files, file{filepath.Join(run, s.Path), s.Format.String(), 3})
		}
		for s := range log.Shards(sink.KindFailures) {
			failed.Files = append(failed.Files, file{filepath.Join(run, s.Path), s.Format.String(), 1})
		}

		name := filepath.Join(dir, "raw-"+format.String())
		f, err := os.Create(name)
		must(t, err)
		meta := map[string]string{"note": "ünïcode", "rollout.schema_version": "1", "rollout.kind": "data"}
		writeRaw(t, f, format, rawRows(), 1000, meta)
		must(t, f.Close())
		raw.Files = append(raw.Files, file{name, format.String(), 3})
	}
	body, err := json.Marshal(map[string]any{"sets": []*set{data, failed, raw}, "runs": runs})
	must(t, err)
	path = filepath.Join(dir, "job.json")
	must(t, os.WriteFile(path, body, 0o666))
	return path
}

// writeRaw writes rows as a data shard without checking rules.
func writeRaw(tb testing.TB, w io.Writer, format sink.Format, rows []sink.StoredRow, groupTokens int, meta map[string]string) {
	tb.Helper()
	encode(tb, new(sink.EncoderPool).NewEncoder(w, format, groupTokens, meta), rows)
}

// encode writes rows and ends their shard.
func encode(tb testing.TB, enc sink.Encoder, rows []sink.StoredRow) {
	tb.Helper()
	for i := range rows {
		must(tb, enc.Encode(&rows[i]))
	}
	must(tb, enc.Close())
}

// rawRows returns rows that a column can hold but no sample can: without tokens, with empty versions,
// and with nulls before and after values in every order.
func rawRows() []sink.StoredRow {
	rng := rand.New(rand.NewPCG(11, 0))
	rows := make([]sink.StoredRow, 400)
	for i := range rows {
		r := &rows[i]
		r.SampleKey = fmt.Sprintf("key-%04d", i)
		for range rng.IntN(3) * rng.IntN(20) {
			r.InputIDs = append(r.InputIDs, rng.Int32())
			r.LossMask = append(r.LossMask, int8(rng.IntN(256)-128))
			r.Logprobs = append(r.Logprobs, math.Float32frombits(rng.Uint32()))
		}
		arena := []int32{int32(i), -1, 3}
		switch rng.IntN(3) {
		case 0:
			r.Versions = arena[len(arena):] // empty, but not null
		case 1:
			r.Versions = arena
		}
		for range rng.IntN(4) {
			r.FinishReasons = append(r.FinishReasons, []string{"", "stop", "漢"}[rng.IntN(3)])
			r.RunIDs = append(r.RunIDs, "")
		}
		r.PromptLength = int32(i)
		r.Reward = maybe(rng, 0, 1, math.Inf(-1))
		r.Messages = maybe(rng, "", "{}")
		r.TopK = maybe[int32](rng, 0, 1)
		r.TopP = maybe[float32](rng, 0, 1)
		r.Truncated = rng.IntN(3) == 0
		if rng.IntN(3) == 0 {
			r.PolicyVersionMin, r.PolicyVersionMax = new(int32(i)), new(rng.Int32())
		}
		r.Keep = maybe(rng, false, true)
		r.KeepReason = maybe(rng, "", "漢", "no reward")
	}
	return rows
}

// maybe returns one of the values, or nil in two of three cases.
func maybe[T any](rng *rand.Rand, values ...T) *T {
	if rng.IntN(3) > 0 {
		return nil
	}
	return &values[rng.IntN(len(values))]
}

// columns returns the columns as the scripts expect them: floats as bits, null as nil. It sorts rows by
// key; the segments of a sample are in order.
func columns[T any](t *testing.T, kind string, rows []T) *set {
	t.Helper()
	slices.SortStableFunc(rows, func(a, b T) int { return cmp.Compare(sampleKey(a), sampleKey(b)) })
	s := &set{Kind: kind, Rows: len(rows), Kinds: map[string]string{}, Values: map[string][]any{}}
	typ := reflect.TypeFor[T]()
	for k := range typ.NumField() {
		name, tags, _ := strings.Cut(typ.Field(k).Tag.Get("parquet"), ",")
		s.Columns = append(s.Columns, name)
		s.Kinds[name] = strings.TrimPrefix(typ.Field(k).Type.String(), "*")
		if strings.Contains(tags, "timestamp") {
			s.Kinds[name] = "timestamp"
		}
		values := make([]any, len(rows))
		for i := range rows {
			values[i] = plain(reflect.ValueOf(rows[i]).Field(k), strings.Contains(tags, "optional"))
		}
		s.Values[name] = values
	}
	return s
}

func sampleKey(row any) string { return reflect.ValueOf(row).FieldByName("SampleKey").String() }

func plain(v reflect.Value, nullable bool) any {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return plain(v.Elem(), false)
	case reflect.Slice:
		if v.IsNil() && nullable {
			return nil
		}
		list := make([]any, v.Len())
		for i := range list {
			list[i] = plain(v.Index(i), false)
		}
		return list
	case reflect.Float32:
		return math.Float32bits(float32(v.Float()))
	case reflect.Float64:
		return math.Float64bits(v.Float())
	}
	return v.Interface()
}
