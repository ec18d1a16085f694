package main

import (
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// A forgetful is a server that answers for a while as if it had no traces.
type forgetful struct {
	readOnly
	forgets atomic.Bool
}

func (s *forgetful) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.forgets.Load() && r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/trace") {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "null") // the caller handles an error
		return
	}
	s.readOnly.ServeHTTP(w, r)
}

// --retry-failed reads only the server runs again that could not be read. It takes no new ones and
// reads none again that the run has. Lost ones fail again. A later resume takes the new ones.
func TestFromRunsRetry(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript()})
	server := &forgetful{readOnly: readOnly{Handler: sim}}
	url := serveHandler(t, sim, server)
	c := curl{t, url}
	good, gone := c.agent("prod"), c.agent("prod")
	c.send(good, "Add 1 and 2.")
	dir := filepath.Join(t.TempDir(), "run")
	collect := func(code int, args ...string) ran {
		t.Helper()
		server.sealed.Store(true)
		defer server.sealed.Store(false)
		return mustRun(t, code, append([]string{"collect", "--server", url, "--out", dir, "--fail-on-error", "100%"}, args...)...)
	}
	collect(exit.OK, "--from-runs", "tag=prod") // read successfully

	late := c.agent("prod")
	c.send(late, "Add 3 and 4.")
	c.send(late, "Add 5 and 6.")
	c.send(gone, "Add 7 and 8.")
	lost := c.runs(gone)[0]
	server.forgets.Store(true)
	collect(exit.Failures, "--resume")
	got := readDataset(t, dir)
	if len(got.rows) != 1 || len(got.failures) != 3 {
		t.Fatalf("%d samples, %d failures", len(got.rows), len(got.failures))
	}
	for id, f := range got.failures {
		if len(f) != 1 || f[0].Reason != "no_trace" {
			t.Errorf("%v: %+v", id, f)
		}
	}

	// The traces are back, one agent is deleted, and there is a new server run.
	server.forgets.Store(false)
	if status, answer := c.do(http.MethodDelete, "/v1/agents/"+gone, ""); status != http.StatusOK {
		t.Fatalf("%s", answer)
	}
	c.send(good, "Add 9 and 1.")
	r := collect(exit.Failures, "--retry-failed")
	for _, want := range []string{"planned 4", "committed 3", "failed 1"} {
		if !strings.Contains(strings.Join(strings.Fields(r.stderr), " "), want) {
			t.Errorf("no %q in\n%s", want, r.stderr)
		}
	}
	if strings.Contains(r.stderr, "server runs match") {
		t.Errorf("the list of server runs was read\n%s", r.stderr)
	}
	got = readDataset(t, dir)
	for _, id := range c.runs(late) {
		if rows := got.rows[sampleID{id, 0}]; len(rows) == 0 || rows[0].AgentID != late || rows[0].Attempt != 2 {
			t.Errorf("%s has %d rows", id, len(rows))
		}
	}
	if f := got.failures[sampleID{lost, 0}]; len(f) == 0 || f[len(f)-1].Reason != "deleted" || f[len(f)-1].Attempt != 2 {
		t.Errorf("the deleted one: %+v", f)
	}
	if len(got.rows) != 3 {
		t.Errorf("%d samples have rows", len(got.rows))
	}

	// A second --retry-failed finds only the lost one. A resume takes the new one.
	if r := collect(exit.Usage, "--retry-failed", "--follow"); !strings.Contains(r.stderr, "--follow and --retry-failed exclude each other: --retry-failed reads only failed server runs") {
		t.Errorf("%s", r.stderr)
	}
	if r := collect(exit.Failures, "--retry-failed", "--from-runs", "tag=prod"); strings.Contains(r.stderr, "server runs match") || !strings.Contains(strings.Join(strings.Fields(r.stderr), " "), "planned 4 committed 3 failed 1") {
		t.Errorf("%s", r.stderr)
	}
	if r := collect(exit.Failures, "--resume"); !strings.Contains(r.stderr, "4 server runs match: 1 to read, 3 already in the run") {
		t.Errorf("%s", r.stderr)
	}
	mustRun(t, exit.OK, "verify", dir)
	got = readDataset(t, dir)
	runs := append(c.runs(good), c.runs(late)...)
	for id := range got.rows {
		if !slices.Contains(runs, id.task) {
			t.Errorf("%s is no server run of these agents", id.task)
		}
	}
	if len(got.rows) != 4 || len(runs) != 4 {
		t.Errorf("%d samples of %d server runs", len(got.rows), len(runs))
	}
	if n := server.changes.Load(); n > 0 {
		t.Errorf("%d requests that may change something", n)
	}
}
