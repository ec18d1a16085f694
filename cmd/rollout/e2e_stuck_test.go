package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// A server run that makes no progress after a lost answer holds its slot no longer than
// server.stuck_after.
func TestStuckAfter(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true, Latency: lettasim.Latency{Low: 6 * time.Second}})
	server := sim.HTTPServer()
	inner := server.Handler
	var working sync.WaitGroup
	var sends atomic.Int64
	t.Cleanup(working.Wait)
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/messages") || sends.Add(1) > 1 {
			inner.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		unwatched := r.Clone(t.Context())
		unwatched.Body = io.NopCloser(strings.NewReader(string(body)))
		working.Go(func() { inner.ServeHTTP(httptest.NewRecorder(), unwatched) })
		time.Sleep(100 * time.Millisecond) // the server run can appear late
		panic(http.ErrAbortHandler)        // the connection is lost, and the server run continues
	})
	dir := filepath.Join(t.TempDir(), "run")
	r := mustRun(t, exit.OK, "collect", "--server", serve(t, server), "--model", simModel, "--out", dir,
		"--tasks", writeFile(t, "tasks.jsonl", []byte(`{"id":"a","prompt":"Hi."}`+"\n")),
		"-c", writeFile(t, "run.yaml", []byte("server: {stuck_after: 1s}\nrun: {preflight: connect}\n"))) // the first send belongs to the sample
	log, err := os.ReadFile(filepath.Join(dir, runfolder.LogName(1)))
	if err != nil || !strings.Contains(string(log), "made no progress for ") {
		t.Errorf("the first run was waited for: %v\n%s%s", err, log, r.stderr)
	}
}
