package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
)

// The engine of a run is out for a while: it refuses every request, health checks included, as a
// proxy in front of a dead engine does. The run waits for it. Although samples have no retries, each
// gets its rows, and no call of the outage is trained.
func TestHarnessOutage(t *testing.T) {
	t.Parallel()
	const tasks = 24
	h := newHarnessRun(t, agentPrompts(tasks), 6, "")
	h.gate.latency = func() time.Duration { return 5 * time.Millisecond }
	settings := string(must(os.ReadFile(h.config))(t))
	noError(t, os.WriteFile(h.config, []byte(strings.Replace(settings, "run: {", "run: {retries: 0, ", 1)), 0o600))
	p := h.start(t, "rollout")
	waitFor(t, "the first calls", func() bool { return h.gate.count() > 10 })
	h.gate.out.Store(true)
	waitFor(t, "the outage to be noticed", func() bool { return strings.Contains(p.said(), "harness is down: ") || !p.alive() })
	// An attempt that fails after the end of the outage would count.
	waitFor(t, "the end of all attempts", func() bool {
		return len(must(filepath.Glob(filepath.Join(h.temp, "rollout-*")))(t)) == 0
	})
	h.gate.out.Store(false)
	p.ends(t, 2*time.Minute, exit.OK)
	contains(t, p.said(), "harness is up again")
	got := verified(t, h.dir)
	if n := len(got.once(t)); n != tasks || len(got.rows) != tasks {
		t.Errorf("%d samples, %d have rows, want %d\n%s", n, len(got.rows), tasks, p.said())
	}
	checkTrained(t, got, h.engine.Calls())
	h.nothingLeft(t)
}
