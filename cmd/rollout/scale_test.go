package main

import (
	"path/filepath"
	"runtime"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink"
)

// The cost of a task and of a finished sample, in allocations and bytes, which do not depend on the
// machine.

// Parsing a task takes few allocations.
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

// A finished sample takes at most 48 bytes of the ledger, and a run of finished samples resumes
// with nothing to do.
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

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
