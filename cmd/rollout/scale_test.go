package main

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink"
)

// The own state of a run at scale: what a task and a done sample cost, in allocations and
// bytes, which do not depend on the machine.

// TestGateTaskAllocs: a task is read in one pass, with few allocations.
func TestGateTaskAllocs(t *testing.T) {
	line := []byte(`{"id": "task-1", "prompt": "What is 1 plus 7? Think step by step.", "answer": "8"}`)
	allocs := testing.AllocsPerRun(100, func() {
		if _, err := tasks.ParseTask(line); err != nil {
			t.Fatal(err)
		}
	})
	if allocs > 15 {
		t.Errorf("%.0f allocations for a task, want at most 15", allocs)
	}
}

// TestGateResumeOfManyTasks: a run whose tasks did not change is continued without reading
// them, or, where they are given again, by reading them once. Of each task that is given 16
// bytes of its id are kept, and no text.
func TestGateResumeOfManyTasks(t *testing.T) {
	const many = 20_000
	var text strings.Builder
	for i := range many {
		fmt.Fprintf(&text, "{\"id\":\"task-%06d\",\"prompt\":\"What is %d plus 7? Think step by step.\",\"answer\":\"%d\"}\n", i, i, i+7)
	}
	file := writeFile(t, "tasks.jsonl", []byte(text.String()))
	p := &program{stdin: strings.NewReader("")}
	l := configured(t, "tasks: {file: "+file+"}\n")
	c := &collection{config: l.Config, display: &display{mode: displayQuiet}}
	dir := filepath.Join(t.TempDir(), "run")
	c.config.Output.Dir = dir
	folder, err := beginRun(dir, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = folder.close() }() // of a test
	check := p.taskCheck(c)
	check.dir, check.mode = folder.dir, folder.mode
	set, err := check.run(tasks.Read(file, nil))
	if err != nil {
		t.Fatal(err)
	}
	id, err := identityOf(l, nil)
	if err != nil {
		t.Fatal(err)
	}
	info, err := describe(l, nil, id, set, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := folder.create(info, set); err != nil {
		t.Fatal(err)
	}
	for _, again := range []struct {
		name  string
		given bool
		most  float64
	}{
		{"not given", false, 1000},
		{"given", true, 22 * many},
	} {
		l := configured(t, "tasks: {file: "+file+"}\n")
		if !again.given {
			l.ByKey["tasks.file"].Origin = "default"
		}
		c.config = l.Config
		c.config.Output.Dir = dir
		allocs := testing.AllocsPerRun(1, func() {
			had, err := readRun(dir)
			if err != nil {
				t.Fatal(err)
			}
			set, bad, err := p.tasksAgain(c, l, &earlierRun{info: had, folder: folder})
			if err != nil || bad != nil || !set.own || set.tasks != many || set.samples != many {
				t.Fatalf("%+v, %v, %v", set, bad, err)
			}
		})
		if allocs > again.most {
			t.Errorf("%s: %.0f allocations for %d tasks, want at most %.0f", again.name, allocs, many, again.most)
		}
		t.Logf("%s: %.2f allocations a task", again.name, allocs/many)
	}
}

// TestGateLedgerBytes: what is kept of a sample that the dataset has fits into 48 bytes, and
// a run of them is continued with nothing to do.
func TestGateLedgerBytes(t *testing.T) {
	const done = 3_000
	sim := newSim(t, lettasim.Config{InputIDs: true})
	url := serveSim(t, sim)
	dir := filepath.Join(t.TempDir(), "run")
	mustRun(t, exit.OK, "collect", "--server", url, "--model", simModel, "--tasks", manyTasks(t, done), "--limit", "1", "--prompts", "turns", "--out", dir, "--quiet")
	finishRun(t, dir, done)
	before := heap()
	l, err := sink.ReadLedger(dir)
	if err != nil {
		t.Fatal(err)
	}
	if committed, failed := l.Counts(); committed != done || failed != 0 {
		t.Fatalf("%d committed and %d failed, want %d and 0", committed, failed, done)
	}
	each := float64(heap()-before) / done
	runtime.KeepAlive(l)
	t.Logf("%.1f bytes a sample", each)
	if each > 48 {
		t.Errorf("%.1f bytes a sample, want at most 48", each)
	}
	sends := sim.Stats().Sends
	mustRun(t, exit.OK, "collect", "--resume", "--out", dir, "--limit", "0", "--quiet")
	if again := sim.Stats().Sends; again != sends {
		t.Errorf("%d sends for samples that are done", again-sends)
	}
}

// heap is what is alive.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
