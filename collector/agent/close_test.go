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
	l, web := simulated(t, lettasim.Config{}, nil)
	for _, keep := range []bool{false, true} {
		b := backendAt(t, web.URL, agent.Config{Keep: keep})
		if err := b.Check(t.Context(), "run"); err != nil {
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
		if got := collector.Classify(err); got != collector.ClassUnavailable || !strings.Contains(err.Error(), id+" was not deleted") {
			t.Errorf("Open = %v, class %v, want unavailable and a word about the agent", err, got)
		}
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
		if collector.Classify(err) != collector.ClassUnavailable || len(r.Sends) != 1 || len(r.Sends[0].Turns) != 1 {
			t.Errorf("Run = %+v, %v, want the answer and an error", r, err)
		}
	})
}
