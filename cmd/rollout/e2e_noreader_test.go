package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// A read-only command without a reader ends silently with SIGPIPE, like any command in a pipe.
func TestDryRunWithoutReader(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true})
	tasks := writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: 2}))
	dryRun := []string{"collect", "--dry-run", "--server", serveSim(t, sim), "--model", simModel, "--tasks", tasks, "--out", filepath.Join(t.TempDir(), "run")}
	for _, args := range [][]string{{"version"}, dryRun, append(dryRun, "--json")} {
		r, w, err := os.Pipe()
		if err == nil {
			err = r.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		var stderr lockedBuffer
		cmd := exec.CommandContext(t.Context(), "rollout", args...)
		cmd.Stdout, cmd.Stderr = w, &stderr
		err = errors.Join(cmd.Run(), w.Close())
		state, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if !ok || !state.Signaled() || state.Signal() != syscall.SIGPIPE || stderr.String() != "" {
			t.Errorf("%v ends with %v, want SIGPIPE\n%s", args, err, stderr.String())
		}
	}
}
