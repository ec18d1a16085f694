package main

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink"
)

func findPython(t *testing.T) string {
	t.Helper()
	python := os.Getenv("ROLLOUT_PYTHON")
	if python == "" {
		python = filepath.Join("..", "..", ".build", "venv", "bin", "python")
	}
	python, err := exec.LookPath(python)
	if err != nil {
		t.Fatalf("no Python for this test: run make python, or set ROLLOUT_PYTHON (%v)", err)
	}
	return python
}

// pyarrow reads the recorded exchanges, with every column in use, and returns the same values as
// our own reader. Corner cases of single values are tested in package sink.
func TestPyarrowReads(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a Python with pyarrow: run without -short")
	}
	python := findPython(t)
	sim := newSim(t, lettasim.Config{InputIDs: true})
	url := serveSim(t, sim)
	tasks := sim.Tasks(lettasim.TaskOptions{Cases: true, Scripted: 10})
	tasks = append(tasks, `{"id":"möglich 漢字 😀","prompt":"Add 2 and 3.","answer":"5","metadata":{"ключ":[1,null,"\u0001"]}}`+"\n"...)
	taskFile := writeFile(t, "tasks.jsonl", tasks)
	config := writeFile(t, "run.yaml", []byte("output: {messages: true}\nreward: {kind: contains}\nrun: {fail_on_error: 100%, retries: 0}\n"))
	for _, format := range []string{"parquet", "arrow"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "run")
			mustRun(t, exit.Failures, "collect", "-c", config, "--server", url, "--model", simModel, "--tasks", taskFile, "--out", dir, "--format", format, "--quiet")
			var want []string
			got := readDataset(t, dir)
			for s := range got.log.Shards(sink.KindData) {
				for r, err := range got.log.Rows(s) {
					if err != nil {
						t.Fatal(err)
					}
					want = append(want, asJSON(t, "data", r))
				}
			}
			for s := range got.log.Shards(sink.KindFailures) {
				for f, err := range got.log.Failures(s) {
					if err != nil {
						t.Fatal(err)
					}
					want = append(want, asJSON(t, "failures", f))
				}
			}
			cmd := exec.CommandContext(t.Context(), python, filepath.Join("testdata", "python", "dump.py"), dir)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, stderr.String())
			}
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			if len(lines) != len(want) || len(want) < 50 {
				t.Fatalf("pyarrow reads %d rows, we read %d", len(lines), len(want))
			}
			seen := map[string]bool{}
			for i, line := range lines {
				var a, b struct {
					Kind string
					Row  map[string]any
				}
				da, db := json.NewDecoder(strings.NewReader(line)), json.NewDecoder(strings.NewReader(want[i]))
				da.UseNumber()
				db.UseNumber()
				if err := da.Decode(&a); err != nil {
					t.Fatal(err)
				}
				if err := db.Decode(&b); err != nil {
					t.Fatal(err)
				}
				if a.Kind != b.Kind || len(a.Row) != len(b.Row) {
					t.Fatalf("row %d: %s with %d columns, want %s with %d", i, a.Kind, len(a.Row), b.Kind, len(b.Row))
				}
				for name, v := range b.Row {
					if !reflect.DeepEqual(a.Row[name], v) {
						t.Errorf("row %d: %s = %.200v, want %.200v", i, name, a.Row[name], v)
					}
					if v != nil {
						seen[name] = true
					}
				}
			}
			for _, name := range []string{"reward", "messages", "metadata", "divergence"} {
				if !seen[name] {
					t.Errorf("no row has a %s: the test has lost its teeth", name)
				}
			}
		})
	}
}

// asJSON returns one row in the format of dump.py.
func asJSON(t *testing.T, kind string, row any) string {
	t.Helper()
	v := reflect.ValueOf(row).Elem()
	columns := map[string]any{}
	for i := range v.NumField() {
		name, tags, _ := strings.Cut(v.Type().Field(i).Tag.Get("parquet"), ",")
		columns[name] = asPlain(v.Field(i), strings.Contains(tags, "optional"))
	}
	b, err := json.Marshal(map[string]any{"kind": kind, "row": columns})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// asPlain represents floats by their bits. A nil list is null only if the column is nullable.
func asPlain(v reflect.Value, nullable bool) any {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return asPlain(v.Elem(), false)
	case reflect.Slice:
		if v.IsNil() && nullable {
			return nil
		}
		list := make([]any, v.Len())
		for i := range list {
			list[i] = asPlain(v.Index(i), false)
		}
		return list
	case reflect.Float32:
		return math.Float32bits(float32(v.Float()))
	case reflect.Float64:
		return math.Float64bits(v.Float())
	}
	return v.Interface()
}
