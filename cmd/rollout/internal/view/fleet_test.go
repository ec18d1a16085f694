package view_test

import (
	"context"
	"fmt"
	"iter"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/fleet"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/store"
)

// TestFleet checks that the partitions of a fleet are shown as one run.
func TestFleet(t *testing.T) {
	t.Parallel()
	const partitions, tasks = 2, 8
	list := func() iter.Seq2[*collector.Task, error] {
		return func(yield func(*collector.Task, error) bool) {
			for i := range tasks {
				if !yield(&collector.Task{ID: fmt.Sprintf("task %d", i), Messages: []string{"hello"}, Samples: 1}, nil) {
					return
				}
			}
		}
	}
	dir := t.TempDir()
	objects := store.Folder(store.OS(), dir)
	if err := fleet.Plan(objects, &fleet.Fleet{ID: runID, Program: "test"}, partitions, list(), t.TempDir()); err != nil {
		t.Fatal(err)
	}
	for p := range partitions {
		d := must(sink.Create(t.TempDir(), sink.Config{RunID: runID, Store: fleet.Dataset(objects, p), Epoch: 1}))(t)
		ended := make(chan error, 1)
		go func() { ended <- d.Run(context.Background()) }()
		m := newMaker(t)
		for task := range list() {
			if fleet.PartitionOf(task.ID, partitions) != p {
				continue
			}
			s := m.sample(task.ID, 0, 1, new(float64(p)), m.row("hello", "I am "+task.ID))
			s.Key, s.GroupID = collector.SampleKey(task, 0), collector.GroupID(task)
			s.RolloutID = collector.RolloutID(s.Key, 1)
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
	url := serve(t, dir, false)
	c := fetch[columns](t, url+"api/samples")
	if c.N != tasks || len(c.Words["task"]) != tasks {
		t.Fatalf("%d samples of %d tasks, want %d", c.N, len(c.Words["task"]), tasks)
	}
	for n := range c.N {
		s := fetch[sampleOf](t, fmt.Sprintf("%sapi/sample/%d", url, n))
		if want := "I am " + c.Words["task"][c.Task[n]]; len(s.Rows) != 1 || s.Rows[0].Text[1][0].T != want || *s.Reward != *c.Reward[n] {
			t.Errorf("sample %d is %+v, want the answer %q", n, s, want)
		}
	}
	if o := fetch[struct{ Report struct{ State string } }](t, url+"api/overview"); o.Report.State != "complete" {
		t.Errorf("the run is %s", o.Report.State)
	}
}
