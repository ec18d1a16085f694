package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// plan --join accepts the fleet that a store contains, but no other tasks, rows or partitions.
func TestFleetJoin(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript()})
	dir, lines := t.TempDir(), sim.Tasks(lettasim.TaskOptions{Scripted: 5})
	list, other := writeFile(t, "tasks.jsonl", lines), writeFile(t, "other.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: 4}))
	at := filepath.Join(dir, "store")
	plan := func(flags ...string) []string {
		return append([]string{"plan", "--server", "http://127.0.0.1:1", "--model", simModel, "--out", at, "--join"}, flags...)
	}
	mustRun(t, exit.OK, plan("--tasks", list, "--partitions", "4")...)
	planned, err := os.ReadFile(filepath.Join(at, "fleet.json"))
	must(t, err)
	for _, tt := range []struct {
		text  string
		flags []string
	}{
		{"tasks.file: the fleet has other tasks", []string{"--tasks", other}},
		{"tasks.samples: the fleet has 1, but you set 3 (--samples)", []string{"--tasks", list, "--samples", "3"}},
		{"tokens.max_row_tokens", []string{"--tasks", list, "--max-row-tokens", "100"}},
		{"--partitions: the fleet has 4, but you set 8", []string{"--tasks", list, "--partitions", "8"}},
	} {
		contains(t, mustRun(t, exit.Folder, plan(tt.flags...)...).stderr, tt.text)
	}
	mustRun(t, exit.OK, plan("--tasks", list)...)
	mustRun(t, exit.OK, plan("--tasks", list, "--partitions", "4", "--max-in-flight", "3")...)
	now, err := os.ReadFile(filepath.Join(at, "fleet.json"))
	must(t, err)
	if !bytes.Equal(now, planned) {
		t.Errorf("fleet.json has changed:\n%s", now)
	}
}
