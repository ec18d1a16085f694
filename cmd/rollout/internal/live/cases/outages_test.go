//go:build linux

package cases_test

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
)

// When something behind the program is down for a while or for good, the run ends with the right
// exit code. Nothing is lost or duplicated, and no agent is left.
func TestOutages(t *testing.T) {
	if testing.Short() {
		t.Skip("the short form of the tests: servers are not broken for long")
	}
	w := newWorld(t, Config{Password: "password of the tests"})
	t.Run("wrong password", w.wrongPassword)
	t.Run("PostgreSQL killed and restarted", func(t *testing.T) {
		c := faulted("PostgreSQL killed and restarted", 6)
		c.called = true // the run does not wait for a server that never answered
		w.hit(t, &c, func() {
			w.l.Postgres.Kill(t)
			w.l.Postgres.Restart(t)
		})
	})
	t.Run("PostgreSQL out of connections", w.crowded)
	w.l.NoAgents(t)
	// The case that waits for two minutes runs beside the others.
	ended := w.with(t, "sglang-dies").dying(t)
	t.Run("tap in front of a dead engine", w.tappedDead)
	t.Run("engine down for a minute", w.engineDown)
	t.Run("engine dead", ended)
	w.l.NoAgents(t)
	t.Logf("all outages\n%s", w.total)
}

func (w *world) noneLeft(t *testing.T, dir string) {
	t.Helper()
	if r := w.l.MustRun(t, exit.OK, w.program, "clean", "--dry-run", "--json", dir); r.Stdout != "" {
		t.Errorf("agents remain:\n%s", r.Stdout)
	}
}

func awaits(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

func wantOutput(t *testing.T, output string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(output, want) {
			t.Errorf("the output lacks %q:\n%s", want, output)
		}
	}
}

// With a wrong password, nothing is created, collected or read, and the password is not shown.
func (w *world) wrongPassword(t *testing.T) {
	c := faulted("wrong password", 1)
	drive, dir := w.write(t, &c)
	for _, args := range [][]string{drive, {"collect", "--server", w.l.URLs[0], "--tokenizer", w.l.Model, "--from-runs", "since=1h", "--out", dir}} {
		cmd := w.l.Command(t.Context(), w.program, args...)
		for i, v := range cmd.Env {
			if strings.HasPrefix(v, "LETTA_PASSWORD=") {
				cmd.Env[i] = "LETTA_PASSWORD=another one"
			}
		}
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != exit.Unusable || strings.Contains(string(out), "another one") || !strings.Contains(string(out), "hint: set server.password") {
			t.Errorf("%v, want exit code %d, a hint, and not the password\n%s", err, exit.Unusable, out)
		}
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the run has a folder: %v", err)
		}
	}
}

// crowded: PostgreSQL has connections for four rollouts, and the run wants twelve. The server then
// answers any request with 500, or with 200 and the stop reason error.
func (w *world) crowded(t *testing.T) {
	usual := w.l.Postgres.MaxConnections
	w.l.Postgres.MaxConnections = 16
	w.l.Postgres.Restart(t)
	c := faulted("PostgreSQL out of connections", 6)
	c.settings = map[string]any{"server": map[string]any{"max_in_flight": 12}, "run": map[string]any{"retries": 8, "data_retries": 8}}
	// Data that the server could not store is not claimed.
	c.allow = map[string]bool{"no_prompt/tool_order": true, "no_prompt": true, "tool_order": true, "count_mismatch": true}
	all, dir := w.write(t, &c)
	from := len(w.engine.calls())
	r := w.begin(t, all...)
	r.wait(t, exit.OK)
	w.l.Postgres.MaxConnections = usual
	w.l.Postgres.Restart(t)
	if !strings.Contains(r.said.String(), "retries") {
		t.Errorf("nothing was retried, so this proves nothing\n%s", r.said.String())
	}
	w.compare(t, &c, dir, from)
}

// engineDown: two engines are down for a minute. One run uses its engine directly. The other is
// behind a tap that answers like the engine. Both runs continue.
func (w *world) engineDown(t *testing.T) {
	v := w.with(t, "sglang-outage")
	p := v.newTap(t, "sglang-tap-outage")
	worlds := []*world{w, v}
	all := []collection{faulted("engine down for a minute", 6), p.through(faulted("engine down for a minute", 6))}
	from, dirs, runs := make([]int, 2), make([]string, 2), make([]*running, 2)
	for i, u := range worlds {
		all[i].called = true // the run does not wait for a server that never answered
		from[i] = len(u.engine.calls())
		var args []string
		args, dirs[i] = u.write(t, &all[i])
		runs[i] = u.begin(t, args...)
	}
	for i, u := range worlds {
		u.calls(t, runs[i], from[i]+6)
	}
	for _, u := range worlds {
		u.engine.kill()
	}
	awaits(t, time.Minute)
	for i, u := range worlds {
		select {
		case <-runs[i].done:
			t.Errorf("run %d did not wait for its engine: exit code %d\n%s", i, runs[i].code, runs[i].said.String())
		default:
		}
		u.engine.start(t)
	}
	for i, u := range worlds {
		runs[i].wait(t, exit.OK)
		u.compare(t, &all[i], dirs[i], from[i])
		u.noneLeft(t, dirs[i])
	}
}

// dying starts a run whose engine dies for good, and returns a function that waits for its end. The
// run ends and can be resumed. It ends at once if neither a sample nor a trial call was answered,
// otherwise after two minutes.
func (w *world) dying(t *testing.T) (ended func(*testing.T)) {
	t.Helper()
	c := faulted("engine dead", 6)
	all, dir := w.write(t, &c)
	from := len(w.engine.calls())
	r := w.begin(t, all...)
	w.calls(t, r, from+6)
	w.engine.kill()
	return func(t *testing.T) {
		t.Helper()
		r.wait(t, exit.Unusable)
		w.noneLeft(t, dir)
		wantOutput(t, r.said.String(), "cannot reach its model engine", "gave up on "+w.l.URLs[0], "rollout collect --resume --out ")
		w.engine.start(t)
		w.l.MustRun(t, exit.OK, w.program, "collect", "--resume", "--out", dir)
		w.compare(t, &c, dir, from)
	}
}

// tappedDead: the tap answers, but the engine behind it is down from the beginning. The run ends at
// once, names the failed engine, and can be resumed.
func (w *world) tappedDead(t *testing.T) {
	v := w.with(t, "sglang-behind")
	p := v.newTap(t, "sglang-tap-dead")
	v.engine.kill()
	from := len(v.engine.calls())
	c := p.through(faulted("tap in front of a dead engine", 3))
	c.called = true
	args, dir := v.write(t, &c)
	r := v.l.MustRun(t, exit.Unusable, v.program, args...)
	wantOutput(t, r.Stderr, "model engine ("+p.url, "gave up on "+v.l.URLs[0], "rollout collect --resume --out ")
	v.noneLeft(t, dir)
	v.engine.start(t)
	v.l.MustRun(t, exit.OK, v.program, "collect", "--resume", "--out", dir)
	v.compare(t, &c, dir, from)
}
