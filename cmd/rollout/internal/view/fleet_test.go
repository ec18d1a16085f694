package view_test

import (
	"fmt"
	"iter"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/fleet"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/store"
	"github.com/rollout-rl/rollout/tokenize"
)

const (
	partitions = 2
	fleetTasks = 8
)

// fleetRun makes a fleet in a new folder. If whole is false, one sample remains and one has failed.
func fleetRun(tb testing.TB, whole bool) string {
	tb.Helper()
	list := func() iter.Seq2[*collector.Task, error] {
		return func(yield func(*collector.Task, error) bool) {
			for i := range fleetTasks {
				if !yield(&collector.Task{ID: fmt.Sprintf("task %d", i), Messages: []string{"hello"}, Samples: 1}, nil) {
					return
				}
			}
		}
	}
	dir := tb.TempDir()
	objects := store.Folder(store.OS(), dir)
	if err := fleet.Plan(objects, &fleet.Fleet{ID: runID, Program: "test"}, partitions, list(), tb.TempDir()); err != nil {
		tb.Fatal(err)
	}
	for p := range partitions {
		m := newMaker(tb)
		for task := range list() {
			if fleet.PartitionOf(task.ID, partitions) != p || !whole && task.ID == "task 7" {
				continue
			}
			var s *tokenize.Sample
			if !whole && task.ID == "task 3" {
				s = m.failure(task.ID, 0, 1, "timeout_total", "too long")
			} else {
				s = m.sample(task.ID, 0, 1, new(float64(p)), m.row("hello", "I am "+task.ID))
			}
			s.Key, s.GroupID = collector.SampleKey(task, 0), collector.GroupID(task)
			s.RolloutID = collector.RolloutID(s.Key, 1)
		}
		d := must(sink.Create(tb.TempDir(), sink.Config{RunID: runID, Store: fleet.Dataset(objects, p), Epoch: 1}))(tb)
		fill(tb, d, m.samples)
		if !whole {
			continue
		}
		if err := d.Seal(); err != nil {
			tb.Fatal(err)
		}
	}
	return dir
}

// TestFleet checks that the partitions of a fleet are shown as one run.
func TestFleet(t *testing.T) {
	t.Parallel()
	url := serve(t, fleetRun(t, true), false)
	c := fetch[columns](t, url+"api/samples")
	if c.N != fleetTasks || len(c.Words["task"]) != fleetTasks {
		t.Fatalf("%d samples of %d tasks, want %d", c.N, len(c.Words["task"]), fleetTasks)
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

// TestFollowFleet checks that a sample that a worker commits into a partition appears.
func TestFollowFleet(t *testing.T) {
	t.Parallel()
	dir := fleetRun(t, false)
	url := serve(t, dir, true)
	if c := fetch[columns](t, url+"api/samples"); c.N != fleetTasks-1 {
		t.Fatalf("%d samples, want %d", c.N, fleetTasks-1)
	}
	m := newMaker(t)
	m.sample("task 7", 0, 1, new(1.0), m.row("hello", "I am task 7"))
	objects := fleet.Dataset(store.Folder(store.OS(), dir), fleet.PartitionOf("task 7", partitions))
	m.samples[0].Key = "7-0"
	fill(t, must(sink.Create(t.TempDir(), sink.Config{RunID: runID, Store: objects, Epoch: 2}))(t), m.samples)
	c := fetch[columns](t, url+"api/samples")
	if c.N != fleetTasks || c.Words["task"][c.Task[fleetTasks-1]] != "task 7" {
		t.Errorf("%d samples, want %d, and task 7 last", c.N, fleetTasks)
	}
}
