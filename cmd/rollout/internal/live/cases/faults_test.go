//go:build linux

package cases_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/live/enginecheck"
	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
)

type running struct {
	cmd  *exec.Cmd
	said transcript
	done chan struct{} // closed when it has ended
	code int
}

type transcript struct {
	mu   sync.Mutex
	said bytes.Buffer
}

func (s *transcript) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.said.Write(b)
}

func (s *transcript) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.said.String()
}

func (r *running) says(t *testing.T, text string, times int) {
	t.Helper()
	for began := time.Now(); strings.Count(r.said.String(), text) < times; {
		select {
		case <-r.done:
			t.Fatalf("it ended before it printed %q %d times: exit code %d\n%s", text, times, r.code, r.said.String())
		case <-time.After(50 * time.Millisecond):
		}
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("it printed %q %d times, want %d\n%s", text, strings.Count(r.said.String(), text), times, r.said.String())
		}
	}
}

func (w *world) begin(t *testing.T, args ...string) *running {
	t.Helper()
	r := &running{cmd: w.l.Command(context.WithoutCancel(t.Context()), w.program, args...), done: make(chan struct{})}
	r.cmd.Stdout, r.cmd.Stderr = &r.said, &r.said
	noError(t, r.cmd.Start())
	go func() {
		defer close(r.done)
		if e, ok := errors.AsType[*exec.ExitError](r.cmd.Wait()); ok {
			r.code = e.ExitCode()
		}
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill() // usually it has ended already
		<-r.done
	})
	return r
}

func (r *running) kill(t *testing.T) {
	t.Helper()
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatalf("it had ended before it was killed: %v\n%s", err, r.said.String())
	}
	<-r.done
}

func (r *running) wait(t *testing.T, code int) {
	t.Helper()
	<-r.done
	if r.code != code {
		t.Errorf("exit code %d, want %d\n%s", r.code, code, r.said.String())
	}
}

// calls waits until the engine has made n calls in total.
func (w *world) calls(t *testing.T, r *running, n int) {
	t.Helper()
	for len(w.engine.calls()) < n {
		select {
		case <-r.done:
			t.Fatalf("it ended after %d of %d calls: exit code %d\n%s", len(w.engine.calls()), n, r.code, r.said.String())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// slow returns tasks whose rollouts take long enough for a fault to hit them.
func slow(n int) []task {
	var tasks []task
	for i := range n {
		tasks = append(tasks, play("slow-"+string(rune('a'+i)), "steps calls=3 ms=300", "think"))
	}
	return tasks
}

// faulted returns a collection for tests with faults.
func faulted(name string, tasks int) collection {
	return collection{
		name: name, tasks: slow(tasks), samples: 2, lost: 1000,
		settings: map[string]any{"server": map[string]any{"max_in_flight": 6, "stuck_after": "15s"}, "run": map[string]any{"retries": 5}},
	}
}

func (w *world) killed(t *testing.T, c collection, kills int) {
	t.Helper()
	args, dir := w.write(t, &c)
	from := len(w.engine.calls())
	for range kills {
		r := w.begin(t, args...)
		w.calls(t, r, len(w.engine.calls())+8)
		r.kill(t)
		args = []string{"collect", "--resume", "--out", dir}
	}
	w.l.MustRun(t, exit.OK, w.program, args...)
	w.compare(t, &c, dir, from)
}

func (w *world) broken(t *testing.T, name string, args []string, hit func()) *enginecheck.Result {
	t.Helper()
	c := faulted(name, 5)
	c.args = args
	return w.hit(t, &c, hit)
}

// hit runs a collection that a fault hits and that still ends well.
func (w *world) hit(t *testing.T, c *collection, hit func()) *enginecheck.Result {
	t.Helper()
	all, dir := w.write(t, c)
	from := len(w.engine.calls())
	r := w.begin(t, all...)
	w.calls(t, r, from+6)
	hit()
	r.wait(t, exit.OK)
	return w.compare(t, c, dir, from)
}

// flip changes the order of the tools in the database repeatedly until stop is called. The server
// queries them without an order and gets the heap order, or the order of an index or a sort if
// PostgreSQL prefers one. So other plans are disabled meanwhile.
func (w *world) flip(t *testing.T) (stop func()) {
	t.Helper()
	plans := func(how string) {
		for _, name := range []string{"enable_indexscan", "enable_indexonlyscan", "enable_bitmapscan", "enable_mergejoin"} {
			w.l.Postgres.Query(t, "ALTER DATABASE postgres "+fmt.Sprintf(how, name))
		}
	}
	plans("SET %s = off")
	ended, end := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			case <-time.After(50 * time.Millisecond):
				for _, table := range []string{"tools_agents", "tools"} {
					w.l.Postgres.Query(t, fmt.Sprintf("UPDATE %[1]s SET %[2]s = %[2]s WHERE ctid IN (SELECT ctid FROM %[1]s ORDER BY random() LIMIT 12)", table, map[string]string{"tools_agents": "tool_id", "tools": "name"}[table]))
				}
			}
		}
	}()
	return func() {
		close(end)
		<-ended
		plans("RESET %s")
	}
}

// untraced collects from a server without traces while the order of the tools changes.
func (w *world) untraced(t *testing.T, samples int) {
	t.Helper()
	stop := w.flip(t)
	defer stop()
	res := w.collect(t, collection{name: "no traces, and the order of the tools flips", samples: samples, code: exit.Tolerance, tasks: []task{
		play("plain", "single", "think").uses(), play("one-tool", "tool", "text-tool").uses("add"), play("one-kept", "sixteen").uses("add").with("keep_reasoning", true),
		play("several", "many", "two").fails("no_prompt"),
	}})
	if res.Quarantined.Calls == 0 || res.Rows == 0 {
		t.Error("want rows of agents with one tool, and calls of those with several quarantined")
	}
}

func (w *world) flipped(t *testing.T, samples int) {
	t.Helper()
	stop := w.flip(t)
	from := len(w.engine.calls())
	w.collect(t, collection{name: "the order of the tools flips", samples: samples, tasks: []task{
		play("flip-many", "many", "two", "think-tool"), play("flip-random", "random seed=11 calls=3", "random seed=12 calls=3", "tool", "single"),
	}})
	stop()
	agents, orders, changed := w.orders(t, w.engine.calls()[from:])
	t.Logf("%d agents, %d orders of tools, %d agents with several", agents, orders, changed)
	if orders < 2 || changed == 0 {
		t.Error("the order of the tools has not changed in mid-run, so this case shows nothing")
	}
}

var toolName = regexp.MustCompile(`\{"type": "function", "function": \{"name": "(\w+)"`)

// orders counts the agents, the orders of tools in their prompts, and the agents whose prompts have
// more than one order.
func (w *world) orders(t *testing.T, calls []enginesim.Call) (agents, orders, changed int) {
	t.Helper()
	all, of := map[string]bool{}, map[string][]string{}
	for _, c := range calls {
		var names []string
		for _, m := range toolName.FindAllStringSubmatch(w.text(t, c.InputIDs), -1) {
			names = append(names, m[1])
		}
		order := strings.Join(names, " ")
		all[order] = true
		if !slices.Contains(of[c.Agent], order) {
			of[c.Agent] = append(of[c.Agent], order)
		}
	}
	for _, o := range of {
		if len(o) > 1 {
			changed++
		}
	}
	return len(of), len(all), changed
}
