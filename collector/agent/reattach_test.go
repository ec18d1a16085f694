package agent_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/collector/letta/lettatest"
)

// TestReattachMany checks that a client can take over hundreds of live server runs of a dead
// client without sending twice or changing a reply.
func TestReattachMany(t *testing.T) {
	t.Parallel()
	const total = 200
	cfg := lettasim.Config{
		KeepAnswers: true, Latency: lettasim.Latency{Low: 500 * time.Millisecond, High: 3 * time.Second},
		Script: lettasim.Script{Calls: lettasim.Range{Min: 1, Max: 3}, Tokens: lettasim.Range{Min: 8, Max: 60}, ThinkTokens: lettasim.Range{Min: 1, Max: 8}},
	}
	var dead atomic.Bool
	begun := make(chan struct{}, total)
	l := simulated(t, cfg, func(l *line, _ int64, w http.ResponseWriter, r *http.Request) {
		if dead.Load() {
			l.sim.ServeHTTP(w, r)
			return
		}
		begun <- struct{}{}
		l.accept(w, r)
	})

	// The first process creates the agents, sends, and dies.
	first := l.backend(t, agent.Config{NoRecover: true})
	var mu sync.Mutex
	ids := map[int]string{}
	var dying errgroup.Group
	dying.SetLimit(64)
	for i := range total {
		dying.Go(func() error {
			g, err := first.Open(t.Context(), scripted(i))
			if err != nil {
				return err
			}
			mu.Lock()
			ids[i] = g.ID()
			mu.Unlock()
			if _, err := g.Run(t.Context()); !errors.Is(err, collector.ErrConnection) {
				return fmt.Errorf("sample %d: %w", i, err)
			}
			return nil
		})
	}
	if err := dying.Wait(); err != nil {
		t.Fatal(err)
	}
	for range total {
		<-begun
	}
	dead.Store(true)

	second := backendAt(t, l.web.URL, agent.Config{}, time.Minute) // a loaded machine can pause for a second
	replies, errs := make([]*collector.Reply, total), make([]error, total)
	var taking errgroup.Group
	taking.SetLimit(200)
	for i := range total {
		taking.Go(func() error {
			left := collector.OpenAttempt{N: 1}
			if i%3 > 0 {
				left.AgentID = ids[i] // the id of every third agent is not in the journal
			}
			g, err := second.Reattach(t.Context(), scripted(i), left)
			if err != nil {
				errs[i] = err
				return nil //nolint:nilerr // it is in errs
			}
			replies[i], errs[i] = g.Run(t.Context())
			t.Cleanup(func() { closeAgent(t, g) })
			return nil
		})
	}
	_ = taking.Wait()

	equal := 0
	cfg.Latency = lettasim.Latency{}
	want := simulated(t, cfg, nil).backend(t, agent.Config{})
	for i := range total {
		if errs[i] != nil {
			t.Logf("sample %d: %v", i, errs[i])
			continue
		}
		reply := replyOf(t, want, scripted(i))
		sameReply(t, replies[i], reply)
		equal++
	}
	if equal*100 < total*99 {
		t.Errorf("%d of %d attempts were taken over, want 99 %%", equal, total)
	}
	s := l.sim.Stats()
	if s.Sends > int64(2*total) || s.Sends < int64(total+equal) || s.AgentsCreated != int64(total) {
		t.Errorf("%d sends by %d agents, want %d by %d: something was run again", s.Sends, s.AgentsCreated, total+equal, total)
	}
	traced := 0
	for _, a := range l.sim.Answers() {
		if a.Traced {
			traced++
		}
	}
	if traced != equal {
		t.Errorf("%d answers were taken from traces, want %d", traced, equal)
	}
	t.Logf("%d of %d taken over and equal", equal, total)
}

// orphan creates an agent of attempt n, runs it with the messages, and leaves it.
func orphan(t *testing.T, b *agent.Backend, n int, messages ...string) string {
	t.Helper()
	a := scripted(1)
	a.N = n
	a.Task = &collector.Task{ID: a.Task.ID, Messages: messages}
	g := opened(t, b, a)
	if len(messages) > 0 {
		if _, err := g.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return g.ID()
}

// TestReattachFinds finds the agent of the attempt and deletes the other agents of the sample.
func TestReattachFinds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		keep  bool
		named bool
		sent  []string // to the agent of attempt 3
		sends int64    // by the second process
		alive int64    // agents at the end
		gone  string
	}{
		{"by its tags", false, false, []string{"Add 2 and 3."}, 1, 1, ""},
		{"by its id", false, true, []string{"Add 2 and 3.", "Multiply 6 by 7."}, 0, 1, ""},
		{"nothing sent yet", false, false, nil, 2, 1, ""},
		{"agents are kept", true, false, nil, 2, 3, ""},
		{"another task", false, false, []string{"Add 2 and 4."}, 0, 1, "is not message 1 of the task"},
		{"too much", false, false, []string{"Add 2 and 3.", "Multiply 6 by 7.", "Add 1 and 1."}, 0, 1, "has more server runs than the task needs (1 too many)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l := simulated(t, lettasim.Config{}, nil)
			b := l.backend(t, agent.Config{Keep: test.keep})
			orphan(t, b, 1)
			orphan(t, b, 2, "Add 2 and 3.")
			id := orphan(t, b, 3, test.sent...)
			before := l.sim.Stats().Sends
			a := scripted(1)
			a.N = 3
			left := collector.OpenAttempt{N: 3}
			if test.named {
				left.AgentID = id
			}
			g := reattached(t, b, a, left)
			if g.ID() != id {
				t.Errorf("found agent %s, want %s", g.ID(), id)
			}
			reply, err := g.Run(t.Context())
			if n := l.sim.Stats().Sends - before; n != test.sends {
				t.Errorf("%d sends, want %d", n, test.sends)
			}
			l.alive(t, test.alive)
			switch {
			case test.gone != "":
				ends(t, err, collector.ClassLost, test.gone)
			case err != nil:
				t.Error(err)
			default:
				// The ids depend on the attempt; the turns do not.
				want := undisturbed(t, lettasim.Config{}, scripted(1))
				for i := range want.Sends {
					sameTurns(t, reply.Sends[i], want.Sends[i])
					if fromRecord := i < len(test.sent); reply.Sends[i].FromRecord != fromRecord {
						t.Errorf("send %d: from the record %v, want %v", i, reply.Sends[i].FromRecord, fromRecord)
					}
				}
			}
			closeAgent(t, g)
			if !test.keep {
				l.alive(t, 0)
			}
		})
	}
}

// TestReattachGone checks that an agent that cannot be taken over is reported and deleted.
func TestReattachGone(t *testing.T) {
	t.Parallel()
	l := simulated(t, lettasim.Config{}, nil)
	b := l.backend(t, agent.Config{})
	for _, test := range []struct {
		n, runs int    // the attempt, and its known server runs
		id      string // of another agent, if it is known
		says    string
	}{
		{1, 0, "agent-00000000-0000-4000-8000-000000000000", "was deleted"},
		{2, 0, "", "no agent of attempt 2"},
		{1, 1, "", "server run run-0000"},
	} {
		left := collector.OpenAttempt{N: test.n, AgentID: test.id}
		left.ServerRuns = []string{"run-00000000-0000-4000-8000-000000000000"}[:test.runs]
		if id := orphan(t, b, 1, "Add 2 and 3."); test.runs > 0 {
			left.AgentID = id
		}
		_, err := b.Reattach(t.Context(), scripted(1), left)
		ends(t, err, collector.ClassLost, test.says)
		l.alive(t, 0)
	}
}

// TestLateRequest checks that a takeover fails if a late request of the dead process changes the
// context.
func TestLateRequest(t *testing.T) {
	t.Parallel()
	var armed atomic.Bool
	l := simulated(t, lettasim.Config{}, func(l *line, _ int64, w http.ResponseWriter, r *http.Request) {
		body := mustRead(r)
		if armed.CompareAndSwap(true, false) {
			l.sim.ServeHTTP(severed{}, twice(r, body))
		}
		l.sim.ServeHTTP(w, twice(r, body))
	})
	b := l.backend(t, agent.Config{})
	id := orphan(t, b, 1, "Add 2 and 3.")
	g := reattached(t, b, scripted(1), collector.OpenAttempt{N: 1, AgentID: id})
	armed.Store(true)
	_, err := ran(t, g)
	ends(t, err, collector.ClassLost, "3 server runs for 2 sends")
}

// TestToolsRunOnce checks that a client tool's result of a dead process comes from the server.
func TestToolsRunOnce(t *testing.T) {
	t.Parallel()
	cases, err := lettasim.LoadCases(os.DirFS("../../testdata"), "letta")
	if err != nil {
		t.Fatal(err)
	}
	for cutAt := int64(1); cutAt <= 2; cutAt++ {
		t.Run(fmt.Sprint(cutAt), func(t *testing.T) {
			t.Parallel()
			l := simulated(t, lettasim.Config{Cases: cases}, accepts(func(n int64) bool { return n == cutAt }))
			ran := filepath.Join(t.TempDir(), "ran")
			cfg := agent.Config{NoRecover: true, ClientTools: []agent.ClientToolConfig{{
				Tool:    letta.ClientTool{Name: "bash"},
				Command: []string{"sh", "-c", `echo run >> "$0"; printf 'a.txt\nb.txt'`, ran},
			}}}
			a := attemptOf(messagesOf(t, lettatest.Read(t, "client-tool-return")))
			a.Task.ID = "client-tool-return"
			id := cut(t, l.backend(t, cfg), a)
			reply, err := takenOver(t, l.backend(t, cfg), a, collector.OpenAttempt{N: a.N, AgentID: id})
			if err != nil || len(reply.Sends) != 2 || !reply.Sends[1].ClientTools || reply.Sends[0].ClientTools {
				t.Errorf("%+v, %v", reply, err)
			}
			if b, err := os.ReadFile(ran); err != nil || string(b) != "run\n" {
				t.Errorf("the tool ran %q, %v, want once", b, err)
			}
		})
	}
}

// TestOldRun checks that a run is not awaited if it is old by the server's clock.
func TestOldRun(t *testing.T) {
	t.Parallel()
	const behind = 20 * time.Minute
	for _, test := range []struct {
		name   string
		date   time.Duration // of the server's clock
		gone   bool
		before time.Duration
	}{
		{"old run", 0, true, time.Hour},
		{"slow clock", -behind, false, 1500 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cfg := lettasim.Config{
				Latency: lettasim.Latency{Low: test.before},
				Now:     func() time.Time { return time.Now().Add(-behind) },
			}
			l := simulated(t, cfg, accepts(func(n int64) bool { return n == 1 }))
			l.handle(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Date", time.Now().Add(test.date).UTC().Format(http.TimeFormat))
				l.ServeHTTP(w, r)
			})
			cut(t, l.backend(t, agent.Config{NoRecover: true}), scripted(1))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			g, err := l.backend(t, agent.Config{}).Reattach(ctx, scripted(1), collector.OpenAttempt{N: 1})
			if err != nil {
				t.Fatal(err)
			}
			_, err = g.Run(ctx)
			if test.gone {
				ends(t, err, collector.ClassLost, "made no progress for ")
			} else if err != nil {
				t.Error(err)
			}
			closeAgent(t, g)
			l.alive(t, 0)
		})
	}
}
