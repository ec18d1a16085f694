package fleet_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/fleet"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink/store"
)

// The partition of a task must never change: workers of other versions read the same fleet.
func TestPartitionOf(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		task string
		n    int
		want int
	}{{"", 256, 75}, {"task 1", 256, 217}, {"task 1", 1, 0}, {"täsk", 10_000, 6070}} {
		is(t, fmt.Sprintf("PartitionOf(%q, %d)", tt.task, tt.n), fleet.PartitionOf(tt.task, tt.n), tt.want)
	}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	objects := folder(t)
	f := plan(t, objects, 8, 100, 3)
	is(t, "partitions", len(f.Partitions), 8)
	is(t, "samples", f.Samples(), 300)
	seen := map[string]int{}
	for p := range f.Partitions {
		list, err := f.Tasks(objects, p)
		must(t, err)
		is(t, "tasks", len(list), f.Partitions[p].Tasks)
		for _, task := range list {
			seen[task.ID]++
			is(t, "partition of "+task.ID, fleet.PartitionOf(task.ID, 8), p)
			is(t, "samples", task.Samples, 3)
			is(t, "messages", fmt.Sprint(task.Messages), "[hello]")
		}
	}
	is(t, "different tasks", len(seen), 100)
	left := 0
	for info, err := range objects.List("", "") {
		must(t, err)
		if !strings.HasPrefix(info.Name, "tasks/fleet-1/") && info.Name != "fleet.json" {
			t.Errorf("object %s", info.Name)
		}
		left++
	}
	is(t, "objects", left, 9)
}

// A plan that fails leaves no fleet, and another plan can follow.
func TestPlanFails(t *testing.T) {
	t.Parallel()
	objects, broken := folder(t), errors.New("broken")
	list := func(yield func(*collector.Task, error) bool) { yield(nil, broken) }
	if err := fleet.Plan(objects, &fleet.Fleet{ID: "a"}, 4, list, t.TempDir()); !errors.Is(err, broken) {
		t.Errorf("Plan = %v", err)
	}
	plan(t, objects, 4, 10, 1)
}

func TestRefused(t *testing.T) {
	t.Parallel()
	edit := func(name, from, to string) func(*testing.T, store.Store) {
		return func(t *testing.T, s store.Store) {
			t.Helper()
			body, err := s.Get(name)
			must(t, err)
			now := bytes.Replace(body, []byte(from), []byte(to), 1)
			if from == "" {
				now = []byte(to)
			}
			must(t, s.Put(name, now))
		}
	}
	for _, tt := range []struct {
		name string
		do   func(t *testing.T, s store.Store)
		code int
		text string
	}{
		{"nothing", func(t *testing.T, s store.Store) { t.Helper(); must(t, s.Delete("fleet.json")) }, exit.Folder, "contains no fleet"},
		{"a changed byte", edit("fleet.json", `"samples":`, `"samples":1`), exit.Verify, "checksum is wrong"},
		{"half a file", edit("fleet.json", "", `{"version":1`), exit.Verify, "no checksum"},
		{"changed tasks", edit("tasks/fleet-1/0002.jsonl.zst", "", "other"), exit.Verify, "not the tasks that rollout plan wrote"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			objects := folder(t)
			plan(t, objects, 4, 100, 1)
			tt.do(t, objects)
			f, err := fleet.Read(objects)
			if err == nil {
				_, err = f.Tasks(objects, 2)
			}
			if exit.Code(err) != tt.code || err == nil || !strings.Contains(err.Error(), tt.text) || exit.HintOf(err) == "" {
				t.Errorf("code %d, hint %q: %v", exit.Code(err), exit.HintOf(err), err)
			}
		})
	}
}

// Two plans cannot use one prefix, even at the same time, and a plan does not use the prefix of a run.
func TestTwoPlans(t *testing.T) {
	t.Parallel()
	objects := folder(t)
	f := plan(t, objects, 4, 100, 1)
	err := fleet.Plan(objects, &fleet.Fleet{ID: "fleet-2"}, 4, taskList(1, 1), t.TempDir())
	is(t, "code", exit.Code(err), exit.Folder)
	_, err = f.Tasks(objects, 0)
	must(t, err)

	objects = folder(t)
	errs := make(chan error)
	for i := range 8 {
		go func() {
			errs <- fleet.Plan(objects, &fleet.Fleet{ID: fmt.Sprint("fleet-", i)}, 4, taskList(100, i+1), t.TempDir())
		}()
	}
	won := 0
	for range 8 {
		if err := <-errs; err == nil {
			won++
		} else {
			is(t, err.Error(), exit.Code(err), exit.Folder)
		}
	}
	is(t, "plans that succeeded", won, 1)
	f, err = fleet.Read(objects)
	must(t, err)
	for p := range f.Partitions {
		_, err := f.Tasks(objects, p)
		must(t, err)
	}

	objects = folder(t)
	must(t, objects.Put("_commits/00000000000000000001.json", []byte("{}")))
	err = fleet.CheckNew(objects)
	is(t, "code of a run", exit.Code(err), exit.Folder)
}
