package main

import (
	"bytes"
	"os"
	"os/exec"
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
	contains(t, mustRun(t, exit.OK, plan("--tasks", list, "--partitions", "4")...).stderr, "planned 5 samples in ")
	planned, err := os.ReadFile(filepath.Join(at, "fleet.json"))
	noError(t, err)
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
	contains(t, mustRun(t, exit.OK, plan("--tasks", list)...).stderr, "found the same plan of 5 samples in ")
	mustRun(t, exit.OK, plan("--tasks", list, "--partitions", "4", "--max-in-flight", "3")...)
	now, err := os.ReadFile(filepath.Join(at, "fleet.json"))
	noError(t, err)
	if !bytes.Equal(now, planned) {
		t.Errorf("fleet.json has changed:\n%s", now)
	}
}

// Each worker scores with the Python function that the fleet was planned with.
func TestFleetPython(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3")
	}
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript()})
	dir, list := t.TempDir(), writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: 4}))
	at, spool := filepath.Join(dir, "store"), filepath.Join(dir, "spool")
	const function = "def score(sample):\n    return 0.25\n"
	score := writeFile(t, "score.py", []byte(function))
	mustRun(t, exit.OK, "plan", "--server", serveSim(t, sim), "--model", simModel, "--tasks", list, "--out", at, "--reward", "python:"+score+":score")
	noError(t, os.WriteFile(score, []byte("def score(sample):\n    return 0.5\n"), 0o600))
	work := []string{"work", at, "--spool", spool, "--preflight", "connect"}
	contains(t, mustRun(t, exit.Folder, work...).stderr, "reward.kind: "+score+" has sha256 ")
	noError(t, os.WriteFile(score, []byte(function), 0o600))
	mustRun(t, exit.OK, work...)
	contains(t, mustRun(t, exit.OK, "report", at).stdout, "mean 0.25, std 0 over 4 samples")
}
