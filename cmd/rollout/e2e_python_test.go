package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink"
)

func findPython(t *testing.T) string {
	t.Helper()
	python := os.Getenv("ROLLOUT_PYTHON")
	if python == "" {
		python = filepath.Join("..", "..", ".build", "venv", "bin", "python")
	}
	python, err := exec.LookPath(python)
	if err != nil {
		t.Fatalf("no Python for this test: run make python, or set ROLLOUT_PYTHON (%v)", err)
	}
	return python
}

// load_dataset of Hugging Face opens the folder of a run by name, with the rows of the commit log
// and the failures.
func TestLoadDataset(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a Python with datasets: run without -short")
	}
	python := findPython(t)
	sim := newSim(t, lettasim.Config{InputIDs: true, Faults: mustFaults(t, "short-logprobs@scripted-0002/0/1")})
	url := serveSim(t, sim)
	tasks := writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: 8}))
	dir := filepath.Join(t.TempDir(), "run")
	mustRun(t, exit.Failures, "collect", "--server", url, "--model", simModel, "--tasks", tasks, "--out", dir, "--fail-on-error", "50%", "--quiet")
	cmd := exec.CommandContext(t.Context(), python, filepath.Join("..", "..", "sink", "testdata", "python", "card.py"), t.TempDir())
	cmd.Stdin = strings.NewReader(dir + "\n")
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	var ways map[string]struct {
		Error string
		Rows  int
	}
	if err == nil {
		err = json.Unmarshal(out, &ways)
	}
	if err != nil {
		t.Fatalf("card.py: %v", err)
	}
	want := map[string]int{}
	log := readDataset(t, dir).log
	for kind, ways := range map[sink.Kind][]string{sink.KindData: {"default", "streaming"}, sink.KindFailures: {"failures"}} {
		for s := range log.Shards(kind) {
			for _, way := range ways {
				want[way] += int(s.Rows)
			}
		}
	}
	if want["default"] != 7 || want["failures"] != 1 {
		t.Errorf("the log has %v rows: the test has lost its teeth", want)
	}
	for way, got := range ways {
		if got.Error != "" || got.Rows != want[way] {
			t.Errorf("%s: %d rows, error %q, the log has %d", way, got.Rows, got.Error, want[way])
		}
	}
}
