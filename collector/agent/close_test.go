package agent_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/collector/letta/lettatest"
)

// TestCancelledClose checks that an unanswered cancel request does not block the deletion, and
// that a proxy's 504 does not count as an answer.
func TestCancelledClose(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status    int // of the send; 0: the connection is closed
		cancelled bool
	}{{0, true}, {502, true}, {503, true}, {504, true}, {429, false}, {422, false}} {
		var mu sync.Mutex
		var got []string
		handler := func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			got = append(got, r.Method+" "+strings.TrimPrefix(r.URL.Path, "/v1/agents/agent-1"))
			mu.Unlock()
			switch {
			case r.URL.Path == "/v1/health/":
				_, _ = io.WriteString(w, `{"version":"0.16.7","status":"ok"}`)
			case r.URL.Path == "/v1/agents/":
				_, _ = io.WriteString(w, `{"id":"agent-1","agent_type":"letta_v1_agent","llm_config":{"handle":"sglang/m","return_token_ids":true}}`)
			case strings.HasSuffix(r.URL.Path, "/cancel"):
				<-r.Context().Done()
			case strings.HasSuffix(r.URL.Path, "/messages"):
				if test.status == 0 {
					panic(http.ErrAbortHandler)
				}
				w.WriteHeader(test.status)
			}
		}
		lettatest.InBubble(t, handler, letta.ClientConfig{}, func(t *testing.T, c *letta.Client) {
			t.Helper()
			b := newBackend(t, c, agent.Config{Model: "sglang/m", NoRecover: true})
			g := opened(t, b, attemptOf([]string{"Hi."}))
			if _, err := g.Run(t.Context()); err == nil {
				t.Error("Run = nil")
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if err := g.Close(ctx); err != nil {
				t.Errorf("status %d: Close = %v", test.status, err)
			}
			want := []string{"DELETE "}
			if test.cancelled {
				want = []string{"POST /messages/cancel", "DELETE "}
			}
			if end := got[slices.Index(got, "POST /messages")+1:]; !slices.Equal(end, want) {
				t.Errorf("status %d: after the send %v, want %v", test.status, end, want)
			}
		})
	}
}

// TestCheckLeavesNothing checks that Check removes its agent even with Config.Keep.
func TestCheckLeavesNothing(t *testing.T) {
	t.Parallel()
	l := simulated(t, lettasim.Config{}, nil)
	for _, keep := range []bool{false, true} {
		if err := l.backend(t, agent.Config{Keep: keep}).Check(t.Context(), "run"); err != nil {
			t.Errorf("Check = %v", err)
		}
		if s := l.sim.Stats(); s.Sends == 0 || s.AgentsAlive != 0 {
			t.Errorf("keep %t: %d sends, %d agents are left", keep, s.Sends, s.AgentsAlive)
		}
	}
}

// TestUnpreparedAgentDeleted checks that an agent that cannot be prepared is deleted.
func TestUnpreparedAgentDeleted(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"", `{"agents":[]}`} {
		p, c := lettatest.NewReplay(t, "single")
		cfg := model
		cfg.File, cfg.KeepReasoning = []byte(file), file == ""
		b := newBackend(t, c, cfg)
		id := p.Made["id"].(string)
		p.Override["PATCH /v1/agents/"+id] = answer(http.StatusServiceUnavailable, "")
		p.Override["DELETE /v1/agents/"+id] = answer(http.StatusBadRequest, "")
		_, err := b.Open(t.Context(), attemptOf([]string{"Hi."}))
		ends(t, err, collector.ClassUnavailable, id+" was not deleted")
		delete(p.Override, "DELETE /v1/agents/"+id)
		if _, err = b.Open(t.Context(), attemptOf([]string{"Hi."})); err == nil || p.Deleted != 1 {
			t.Errorf("Open = %v, %d agents deleted, want an error and 1", err, p.Deleted)
		}
	}
}

// TestRunNotNamed checks that the tokens of an answer stay if its server run cannot be found.
func TestRunNotNamed(t *testing.T) {
	t.Parallel()
	p, c := lettatest.NewReplay(t, "empty")
	p.Override["GET /v1/runs/"] = answer(http.StatusServiceUnavailable, "")
	play(t, p, c, model, attemptOf(messagesOf(t, p.Recording)), func(r *collector.Reply, err error) {
		if ends(t, err, collector.ClassUnavailable, ""); len(r.Sends) != 1 || len(r.Sends[0].Turns) != 1 {
			t.Errorf("Run = %+v, want the answer", r)
		}
	})
}

// TestHeldReplies checks that others wait until an agent is closed, which releases all its
// replies.
func TestHeldReplies(t *testing.T) {
	t.Parallel()
	// Every reply is larger than the room and passes alone.
	b := simulated(t, lettasim.Config{Seed: 1}, nil).backend(t, agent.Config{MaxHeldBytes: 1})
	first := opened(t, b, scripted(0))
	reply, err := first.Run(t.Context())
	if err != nil || len(reply.Sends) != 2 {
		t.Fatalf("%d sends, %v, want 2: a later reply must not wait", len(reply.Sends), err)
	}
	second := opened(t, b, scripted(1))
	ran := make(chan error, 1)
	go func() {
		_, err := second.Run(t.Context())
		ran <- err
	}()
	if !agent.Held(b) {
		t.Error("an agent with its replies holds nothing")
	}
	closeAgent(t, first)
	if err := <-ran; err != nil {
		t.Errorf("the agent that waited: %v", err)
	}
	closeAgent(t, second)
	if agent.Held(b) {
		t.Error("something is held after all agents were closed")
	}
}

// TestCleanKeeps checks that Clean spares the agents of attempts that will be taken over.
func TestCleanKeeps(t *testing.T) {
	t.Parallel()
	l := simulated(t, lettasim.Config{}, nil)
	b := l.backend(t, agent.Config{})
	for n := 1; n <= 3; n++ {
		orphan(t, b, n)
	}
	kept := 0
	n, err := agent.Clean(t.Context(), b.Client(), "run-r", func(a *letta.AgentState) bool {
		key, attempt := agent.AttemptOf(a)
		if key != "sums-0001" {
			t.Errorf("agent of key %q", key)
		}
		if attempt == 2 {
			kept++
		}
		return attempt == 2
	})
	if err != nil || n != 2 || kept != 1 || l.sim.Stats().AgentsAlive != 1 {
		t.Errorf("%d deleted, %d kept, %d alive, %v; want 2, 1 and 1", n, kept, l.sim.Stats().AgentsAlive, err)
	}
	if n, err = agent.Clean(t.Context(), b.Client(), "run-r", nil); err != nil || n != 1 {
		t.Errorf("%d deleted, %v", n, err)
	}
}

// TestClean checks that agents without the tag stay even if the server ignores the filter.
func TestClean(t *testing.T) {
	t.Parallel()
	const agents = `[{"id":"agent-a","tags":["rollout","rollout-run:r1"]},{"id":"agent-b","tags":["precious"]},{"id":"agent-c","tags":["rollout","rollout-run:r2"]}]`
	for _, test := range []struct {
		run  string
		want []string
	}{{"r1", []string{"agent-a"}}, {"", []string{"agent-a", "agent-c"}}, {"r3", nil}} {
		var gone []string
		c := lettatest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodDelete {
				gone = append(gone, strings.TrimPrefix(r.URL.Path, "/v1/agents/"))
				return
			}
			_, _ = io.WriteString(w, agents) // this server ignores tags and cursors
		})
		n, err := agent.Clean(t.Context(), c, test.run, nil)
		if err != nil || n != len(test.want) || !slices.Equal(gone, test.want) {
			t.Errorf("Clean(%q) = %d, %v, deleted %v, want %v", test.run, n, err, gone, test.want)
		}
	}
}
