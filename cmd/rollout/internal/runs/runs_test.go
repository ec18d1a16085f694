package runs_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/fleet"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runs"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/sink/store"
)

func must[T any](v T, err error) func(testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return v
	}
}

const tasks = 12

func taskList() iter.Seq2[*collector.Task, error] {
	return func(yield func(*collector.Task, error) bool) {
		for i := range tasks {
			if !yield(&collector.Task{ID: fmt.Sprintf("task %d", i), Messages: []string{"hello"}, Samples: 1}, nil) {
				return
			}
		}
	}
}

// collect writes the samples of a partition that keep returns true for, and seals its log.
func collect(t *testing.T, objects store.Store, p int, keep func(task *collector.Task) bool) {
	t.Helper()
	d := must(sink.Create(t.TempDir(), sink.Config{RunID: "fleet-1", Store: fleet.Dataset(objects, p), Epoch: 1}))(t)
	ended := make(chan error, 1)
	go func() { ended <- d.Run(context.Background()) }()
	for task := range taskList() {
		if !keep(task) {
			continue
		}
		b := sinktest.NewBuilder(1)
		s := b.Sample(b.Row(4, 4))
		s.Key, s.TaskID, s.GroupID, s.GroupSize = collector.SampleKey(task, 0), task.ID, collector.GroupID(task), 1
		s.Index, s.RolloutID = 0, collector.RolloutID(s.Key, 1)
		if err := d.Append(t.Context(), s, func(error) {}); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{d.Close(t.Context()), <-ended, d.Seal()} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A fleet with a planted fault has exactly the problems that Verify must find.
func TestVerifyFleet(t *testing.T) {
	t.Parallel()
	const partitions = 3
	in := func(p int) func(*collector.Task) bool {
		return func(task *collector.Task) bool { return fleet.PartitionOf(task.ID, partitions) == p }
	}
	for _, c := range []struct {
		name  string
		plant func(t *testing.T, dir string, objects store.Store) func(*collector.Task) bool // the samples of partition 1
		want  []string
	}{
		{"whole", nil, nil},
		{"a sample is missing", func(*testing.T, string, store.Store) func(*collector.Task) bool {
			first := true
			return func(task *collector.Task) bool {
				skip := in(1)(task) && first
				first = first && !skip
				return in(1)(task) && !skip
			}
		}, []string{"is missing, although the log is sealed"}},
		{"a sample of another partition", func(*testing.T, string, store.Store) func(*collector.Task) bool {
			first := true
			return func(task *collector.Task) bool {
				more := in(0)(task) && first
				first = first && !more
				return in(1)(task) || more
			}
		}, []string{"is in no task of the partition"}},
		{"changed tasks", func(t *testing.T, dir string, _ store.Store) func(*collector.Task) bool {
			t.Helper()
			path := filepath.Join(dir, "tasks", "fleet-1", "0001.jsonl.zst")
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte("changed"), 0o600); err != nil {
				t.Fatal(err)
			}
			return in(1)
		}, []string{"these are not the tasks that rollout plan wrote"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			objects := store.Folder(store.OS(), dir)
			if err := fleet.Plan(objects, &fleet.Fleet{ID: "fleet-1", Program: "test"}, partitions, taskList(), t.TempDir()); err != nil {
				t.Fatal(err)
			}
			own := in(1)
			if c.plant != nil {
				own = c.plant(t, dir, objects)
			}
			collect(t, objects, 0, in(0))
			collect(t, objects, 1, own)
			collect(t, objects, 2, in(2))
			run := must(runs.Open(t.Context(), dir, slog.New(slog.DiscardHandler)))(t)
			r := must(run.Verify(t.Context(), sink.VerifyOptions{RunID: run.Info.ID, MaxProblems: 10}))(t)
			if len(r.Problems) != len(c.want) || r.ProblemCount != int64(len(c.want)) {
				t.Fatalf("problems: %v, want %q", r.Problems, c.want)
			}
			for i, want := range c.want {
				if text := r.Problems[i].Error(); !strings.Contains(text, want) || !strings.Contains(text, "0001") {
					t.Errorf("problem %q, want %q", text, want)
				}
			}
			if c.want == nil && (r.Samples != tasks || r.Commits == 0 || r.Rows != tasks) {
				t.Errorf("%+v", r)
			}
		})
	}
}

// A changed copy of the tokenizer is found in a bucket, too.
func TestVerifyTokenizer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	objects := store.Folder(store.OS(), dir)
	d := must(sink.Create(t.TempDir(), sink.Config{RunID: "run", Store: objects, Epoch: 1}))(t)
	ended := make(chan error, 1)
	go func() { ended <- d.Run(context.Background()) }()
	if err := errors.Join(d.Close(t.Context()), <-ended, objects.Put("tokenizer/0123/tokenizer.json", []byte("{}"))); err != nil {
		t.Fatal(err)
	}
	run := &runs.Run{Location: dir, Store: objects, Datasets: []runs.Dataset{{Partition: -1, Store: objects}}}
	r := must(run.Verify(t.Context(), sink.VerifyOptions{RunID: "run", MaxProblems: 10}))(t)
	if len(r.Problems) != 1 || r.ProblemCount != 1 || !strings.HasPrefix(r.Problems[0].Error(), "tokenizer/0123: the files have sha256 ") {
		t.Errorf("problems %v", r.Problems)
	}
}

// The name of a run is the last part of its location, without the parameters of a URL.
func TestName(t *testing.T) {
	t.Parallel()
	for location, want := range map[string]string{
		"s3://bucket/a/run1": "run1", "s3://bucket/run1/": "run1", "s3://bucket": "bucket",
		"s3://bucket/run1?region=x&endpoint_override=http://127.0.0.1:9000": "run1",
	} {
		if got := (&runs.Run{Location: location}).Name(); got != want {
			t.Errorf("the name of %s is %q, want %q", location, got, want)
		}
	}
}
