package sink_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
)

// opened is the output of testdata/python/card.py for one way to open a folder.
type opened struct {
	Error   string
	Rows    int
	Tokens  int64
	Keys    []string
	Columns map[string]string
}

// openCards returns a function that opens a run's folder with load_dataset of Hugging Face. One process
// opens all folders.
func openCards(t *testing.T) func(dir string) (ways map[string]opened) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), interpreter(t), filepath.Join("testdata", "python", "card.py"), t.TempDir())
	cmd.Stderr = t.Output()
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _, _ = in.Close(), cmd.Wait() }) // its context has ended it
	answers := json.NewDecoder(out)
	return func(dir string) (ways map[string]opened) {
		t.Helper()
		_, err := fmt.Fprintln(in, dir)
		must(t, errors.Join(err, answers.Decode(&ways)))
		return ways
	}
}

// TestLoadDataset opens a folder by name: empty, being written, complete, and with an unnamed shard.
func TestLoadDataset(t *testing.T) {
	t.Parallel()
	openCard := openCards(t)
	for _, format := range []sink.Format{sink.Parquet, sink.Arrow} {
		d, dir := create(t, sink.Config{Format: format, MaxShardBytes: 20_000})
		if got := openCard(dir)["default"]; got.Error != "DataFilesNotFoundError" {
			t.Errorf("without a row: %+v", got)
		}
		wait := start(t.Context(), t, d)
		b := sinktest.NewBuilder(5)
		for i := range 40 {
			s := b.Sample(b.Row(300, 200), b.Row(30, 20, 10, 20))
			if i%10 == 3 {
				s = b.Failure(100)
			}
			appendAll(t, d, s)
			if i == 25 { // open shards, some commits, and an uncommitted shard
				first := readLog(t, dir).Commits[0].Shards[0]
				// Like a writer before its commit.
				beside := filepath.Join(dir, "data", "part-run-0-99-01234567"+filepath.Ext(first.Path))
				must(t, os.WriteFile(beside, readFile(t, filepath.Join(dir, first.Path)), 0o666))
				loads(t, openCard, dir, format)
			}
		}
		must(t, errors.Join(d.Close(t.Context()), wait()))
		loads(t, openCard, dir, format)
	}
}

// loads compares the result of load_dataset with the log. It waits until the card lists every shard
// that load_dataset can read, and opens the folder again if a commit was added meanwhile.
func loads(t *testing.T, openCard func(dir string) map[string]opened, dir string, format sink.Format) {
	t.Helper()
	var log *sink.Log
	var ways map[string]opened
	for ways == nil || len(readLog(t, dir).Commits) != len(log.Commits) {
		log = readLog(t, dir)
		card := string(readFile(t, filepath.Join(dir, "README.md")))
		unlisted := func(s sink.Shard) bool {
			listed := s.Kind == sink.KindData || format == sink.Parquet
			return listed && !strings.Contains(card, s.Path)
		}
		if slices.ContainsFunc(log.Commits, func(c sink.Commit) bool { return slices.ContainsFunc(c.Shards, unlisted) }) {
			ways = nil
			time.Sleep(time.Millisecond)
			continue
		}
		ways = openCard(dir)
	}
	var want, failures opened
	for s := range log.Shards(sink.KindData) {
		for r := range each(t, log.Rows(s)) {
			want.Keys = append(want.Keys, r.SampleKey)
		}
		want.Tokens += s.Tokens.Total
	}
	for s := range log.Shards(sink.KindFailures) {
		for f := range each(t, log.Failures(s)) {
			failures.Keys = append(failures.Keys, f.SampleKey)
		}
	}
	for _, way := range []string{"default", "streaming"} {
		got := ways[way]
		if got.Error != "" || !reflect.DeepEqual(got.Keys, want.Keys) || got.Tokens != want.Tokens {
			t.Errorf("%s: error %q, %d rows with %d tokens, the log has %d with %d", way, got.Error, got.Rows, got.Tokens, len(want.Keys), want.Tokens)
		}
		for name, typ := range map[string]string{
			"input_ids": "List(Value('int32'))", "loss_mask": "List(Value('int8'))", "logprobs": "List(Value('float32'))",
			"versions": "List(Value('int32'))", "reward": "Value('float64')", "started_at": "Value('timestamp[us, tz=UTC]')",
			"flags": "List(Value('string'))", "truncated": "Value('bool')", "messages": "Value('string')",
		} {
			if got.Columns[name] != typ {
				t.Errorf("%s: column %s is %s, want %s", way, name, got.Columns[name], typ)
			}
		}
		if n := reflect.TypeFor[sink.StoredRow]().NumField(); len(got.Columns) != n {
			t.Errorf("%s: %d columns, want %d", way, len(got.Columns), n)
		}
	}
	got := ways["failures"]
	if format == sink.Arrow {
		failures = opened{Error: "ValueError"} // the library would read Parquet as Arrow
	}
	if got.Error != failures.Error || fmt.Sprint(got.Keys) != fmt.Sprint(failures.Keys) {
		t.Errorf("failures: error %q, keys %q, the log has %q", got.Error, got.Keys, failures.Keys)
	}
}
