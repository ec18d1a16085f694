package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// TestHungScorer: a reward command that never answers, and that started another program.
// The drain says that it waits for scores, and the second interrupt ends both programs,
// and the run, within seconds; what was being scored remains.
func TestHungScorer(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript()})
	pids := filepath.Join(t.TempDir(), "pids")
	config := fmt.Sprintf("reward: {kind: command, timeout: 10m, processes: 2, command: [sh, -c, 'sleep 600 & echo $$ $! >>%s; sleep 600']}\n", pids)
	dir := filepath.Join(t.TempDir(), "run")
	p := startProgram(t, "rollout", nil, "collect", "--server", serveSim(t, sim), "--model", simModel, "--out", dir,
		"-c", writeFile(t, "run.yaml", []byte(config)), "--max-in-flight", "4",
		"--tasks", writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: 4})))
	waitFor(t, "all samples to be scored", func() bool {
		b, _ := os.ReadFile(pids)
		return strings.Count(string(b), "\n") == 2 && sim.Stats().Answered >= 4 && sim.Stats().InFlight == 0 || !p.alive()
	})
	interrupt := func(said string) {
		_ = p.cmd.Process.Signal(syscall.SIGINT)
		waitFor(t, said, func() bool { return strings.Contains(p.said(), said) || !p.alive() })
	}
	waitFor(t, "the samples to come from the reply to the score", func() bool {
		_ = p.cmd.Process.Signal(syscall.SIGUSR1)
		time.Sleep(50 * time.Millisecond)
		said := p.said()
		return strings.Count(said[max(strings.LastIndex(said, "rollout: status of run "), 0):], ": score for ") == 4 || !p.alive()
	})
	interrupt("draining: waiting for 4 samples being scored")
	began := time.Now()
	interrupt("stopping: interrupted")
	if code := p.wait(t, 90*time.Second); code != exit.Interrupted {
		t.Errorf("exit code %d\n%s", code, p.said())
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %v to stop", took)
	}
	b, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	for word := range strings.FieldsSeq(string(b)) {
		var pid int
		if _, err := fmt.Sscan(word, &pid); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "process "+word+" to end", func() bool {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || err == nil && strings.Contains(string(stat), ") Z ")
		})
	}
	if got := readDataset(t, dir); len(got.rows)+len(got.failures) != 0 {
		t.Errorf("%d samples are data and %d failed, want all to remain", len(got.rows), len(got.failures))
	}
}
