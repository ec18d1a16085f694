package main

import (
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// If the engine behind the server is down, the message blames the engine and not the server's
// address.
func TestEngineAway(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{Faults: lettasim.Faults{{Kind: lettasim.EngineDown, Rate: 1, Attempts: 99}}})
	url := serveSim(t, sim)
	r := invoke(t.Context(), "doctor", "--server", url, "--model", simModel)
	all := r.stdout + r.stderr
	if r.code != exit.Unusable || !strings.Contains(all, "the server's model engine (http://127.0.0.1:30000/generate) failed") ||
		!strings.Contains(all, "hint: the Letta server is up: check the model engine behind it") {
		t.Errorf("exit code %d\n%s", r.code, all)
	}
	if strings.Contains(all, "is the address right") {
		t.Errorf("the address of the server is blamed:\n%s", all)
	}
}

// If the engine answered the trial call and fails before the first sample, the run waits for it. A
// stream makes its trial call when the first task arrives.
func TestEngineDownAfterTheTrial(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"batch": nil, "stream": {"--stream", "--samples", "1"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript()})
			var sends atomic.Int32
			var back atomic.Bool
			url := serveHandler(t, sim, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/messages") && sends.Add(1) > 1 && !back.Load() {
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(http.StatusInternalServerError)
					_, _ = w.Write([]byte(`{"detail":"An unknown error occurred"}`))
					return
				}
				sim.ServeHTTP(w, r)
			}))
			dir := filepath.Join(t.TempDir(), "run")
			tasks := writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: 4}))
			args := []string{"collect", "--server", url, "--model", simModel, "--out", dir, "--max-in-flight", "4", "--tasks", tasks}
			p := startProgram(t, "rollout", nil, append(args, flags...)...)
			waitFor(t, "the program to see it", func() bool { return strings.Contains(p.said(), " is down: ") || !p.alive() })
			back.Store(true)
			if flags != nil && p.alive() {
				mustRun(t, exit.OK, "ctl", dir, "drain")
			}
			if code := p.wait(t, time.Minute); code != exit.OK {
				t.Errorf("exit code %d\n%s", code, p.said())
			}
			if got := readDataset(t, dir); len(got.rows) != 4 || len(got.failures) != 0 {
				t.Errorf("%d samples are data and %d failed", len(got.rows), len(got.failures))
			}
		})
	}
}
