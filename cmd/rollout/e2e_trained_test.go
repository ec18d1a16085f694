package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
)

// A trainedReport contains fields of the report of testdata/python/trained.py.
type trainedReport struct {
	Samples  int
	Parents  int                                    // rows that have a parent
	Expected map[string]struct{ Calls, Tokens int } // by what the log says
}

// compareWithLog fails the test if the rows of a run are not what the log of its engine says. The
// comparison is a Python program that shares nothing with this one. failed contains the seeds of the
// scripts whose samples failed.
func compareWithLog(t *testing.T, run, log string, failed ...string) *trainedReport {
	t.Helper()
	args := append([]string{filepath.Join("testdata", "python", "trained.py"), run, log, "--failed"}, failed...)
	cmd := exec.CommandContext(t.Context(), findPython(t), args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the rows differ from the engine's log: %v\n%s", err, out)
	}
	var r trainedReport
	noError(t, json.Unmarshal(out, &r))
	return &r
}

// writeLog writes the log of the engine to a file.
func (h *harnessRun) writeLog(t *testing.T) string {
	t.Helper()
	var log []byte
	for _, call := range h.engine.Calls() {
		log = call.AppendJSON(log)
	}
	return writeFile(t, "calls.jsonl", log)
}

// The independent comparison finds every error that is planted in the rows of a run, and none without.
func TestComparisonFindsErrors(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs Python")
	}
	h := newHarnessRun(t, agentPrompts(len(agentKinds)), len(agentKinds), "")
	h.start(t, "rollout", "--quiet").ends(t, 3*time.Minute, exit.OK)
	var got map[string][]string
	noError(t, json.Unmarshal(runPython(t, "plant.py", h.dir, h.writeLog(t)), &got))
	for name, list := range map[string]string{
		"superseded": "differences",
		"auxiliary":  "differences",
		"context":    "wrong_context",
		"chain":      "wrong_chain",
		"kind":       "wrong_chain",
		"order":      "wrong_chain",
		"missing":    "differences",
		"twice":      "differences",
		"part":       "differences",
		"sample":     "wrong_sample",
		"parent":     "wrong_parent",
		"logprob":    "wrong_logprobs",
	} {
		if !slices.Contains(got[name], list) {
			t.Errorf("%s: found in the lists %q, want %s", name, got[name], list)
		}
	}
	if right, ok := got["right"]; !ok || len(right) > 0 {
		t.Errorf("without an error: found in the lists %q", right)
	}
}
