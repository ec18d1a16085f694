package main

import (
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// Transient failures of the servers during the preflight are retried and do not end a run.
func TestPreflightTriesAgain(t *testing.T) {
	t.Parallel()
	reset := func(w http.ResponseWriter) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		}
	}
	status := func(code int) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { http.Error(w, `{"detail": "said by the test"}`, code) }
	}
	for _, tt := range []struct {
		name  string
		times int64 // how many creates fail
		fail  func(http.ResponseWriter)
		code  int
		again int // how often the run prints that it retries
	}{
		{"one lost connection", 1, reset, exit.OK, 1},
		{"unavailable for a moment", 2, status(http.StatusServiceUnavailable), exit.OK, 2},
		{"busy", 1, status(http.StatusTooManyRequests), exit.OK, 1},
		{"a failing server", 1, status(http.StatusInternalServerError), exit.OK, 1},
		{"a server that stays away", 9, reset, exit.Unusable, 2},
		{"not let in", 9, status(http.StatusUnauthorized), exit.Unusable, 0},
		{"a request that is refused", 9, status(http.StatusUnprocessableEntity), exit.Unusable, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			sim := newSim(t, lettasim.Config{})
			server := sim.HTTPServer()
			inner, left := server.Handler, atomic.Int64{}
			left.Store(tt.times)
			server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost && r.URL.Path == "/v1/agents/" && left.Add(-1) >= 0 {
					tt.fail(w)
					return
				}
				inner.ServeHTTP(w, r)
			})
			tasks := writeFile(t, "tasks.jsonl", []byte(`{"id":"a","prompt":"Hi."}`+"\n"))
			r := invoke(t.Context(), "collect", "--server", serve(t, server), "--model", simModel, "--tasks", tasks,
				"--out", filepath.Join(t.TempDir(), "run"), "--dry-run")
			if again := strings.Count(r.stderr, "retrying in "); r.code != tt.code || again != tt.again {
				t.Errorf("exit code %d after trying again %d times, want %d after %d\n%s", r.code, again, tt.code, tt.again, r.stderr)
			}
		})
	}
}
