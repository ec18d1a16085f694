//go:build linux

package cases_test

import (
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
)

// TestLetta runs all cases in sequence on one Letta, in the short or the full form.
func TestLetta(t *testing.T) {
	full := !testing.Short()
	servers, kills, samples := 1, 1, 2
	if full {
		servers, kills, samples = 2, 3, 4
	}
	w := newWorld(t, Config{Pool: true, Servers: servers})
	w.spread = full
	t.Run("conform", w.conform)
	t.Run("plain", func(t *testing.T) {
		tasks := plain(w.handle)
		if !full {
			tasks = short(tasks)
		}
		c := collection{name: "what a model may say", tasks: tasks, samples: 1, code: exit.Tolerance, called: true, lost: len(w.l.URLs)} // the calls of the preflights are lost
		w.collect(t, c)
	})
	for _, c := range w.ways(t, w.handle, full) {
		t.Run(c.name, func(t *testing.T) { w.collect(t, c) })
	}
	t.Run("from runs", func(t *testing.T) { w.fromRuns(t, full) })
	if full {
		t.Run("same", w.same)
	}
	t.Run("kill", func(t *testing.T) { w.killed(t, faulted("collector killed and resumed", 5), kills) })
	if full {
		w.faults(t)
	}
	// Without a pool, because only a new connection uses the new plans. One server is enough.
	w.spread = false
	t.Run("flip", func(t *testing.T) {
		if !full { // in the full form the faults have restarted it
			w.l.Pool(false)
			w.l.Restart(t, 0)
		}
		w.flipped(t, samples)
	})
	t.Run("continuity untapped", w.untapped)
	t.Run("foreign splice", w.foreign)
	t.Run("traces off", func(t *testing.T) {
		w.l.Traces(false)
		w.l.Restart(t, 0)
		w.untraced(t, samples)
	})
	t.Run("tap", func(t *testing.T) { w.tapCases(t, full) })
	t.Run("continuity", w.continued)
	if !full { // in the full form it is its own test with its own server
		t.Run("existing", w.existing)
	}
	w.l.NoAgents(t)
	t.Logf("all cases\n%s", w.total)
	if w.server == 0 { // no collection was selected
		return
	}
	t.Logf("collectors took %v of CPU, Letta and PostgreSQL %v meanwhile: %.1f %%; those %v in all", w.took, w.server, 100*w.took.Seconds()/w.server.Seconds(), w.l.CPU())
}

// faults are short faults during a run. Afterwards the servers have no pool, and the second one is
// gone.
func (w *world) faults(t *testing.T) {
	t.Helper()
	t.Run("engine", func(t *testing.T) {
		w.broken(t, "engine killed and restarted", nil, func() {
			w.engine.kill()
			w.engine.start(t)
		})
	})
	t.Run("weights", func(t *testing.T) {
		page := []string{"--policy-version", w.engine.url + "/model_info", "--one-engine"}
		res := w.broken(t, "new weights", page, func() { w.engine.sim.SetVersion("4") })
		if res.Versions["3"] == 0 || res.Versions["4"] == 0 {
			t.Errorf("calls by version: %v, want some of 3 and of 4", res.Versions)
		}
	})
	w.l.Pool(false)
	t.Run("server", func(t *testing.T) {
		w.broken(t, "server killed and restarted", nil, func() {
			w.l.Kill(t, 0)
			w.l.Restart(t, 0)
		})
	})
	t.Run("servers", func(t *testing.T) {
		w.broken(t, "one of two servers killed", []string{"--server", w.l.URLs[1]}, func() { w.l.Kill(t, 1) })
	})
}
