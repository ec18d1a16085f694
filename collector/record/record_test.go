package record_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/record"
)

// A shelf is a fake server. It takes one second per answer and counts the requests.
type shelf struct {
	steps, messages, traces, agents, texts atomic.Int32
	refuse                                 atomic.Int32 // number of requests that fail first
	kept                                   atomic.Bool  // whether the server keeps traces
}

var errRefused = errors.New("refused")

func (s *shelf) answer(ctx context.Context, n *atomic.Int32) error {
	n.Add(1)
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if s.refuse.Add(-1) >= 0 {
		return errRefused
	}
	return nil
}

func (s *shelf) Agent(ctx context.Context, id string) (*letta.AgentState, error) {
	return &letta.AgentState{ID: id, MessageIDs: []string{"message-0"}}, s.answer(ctx, &s.agents)
}

func (s *shelf) SystemText(ctx context.Context, _ string) (string, error) {
	return "Be brief.", s.answer(ctx, &s.texts)
}

func (s *shelf) Conversation(context.Context, string) (*letta.Conversation, error) {
	return &letta.Conversation{}, nil
}

func (s *shelf) RunSteps(ctx context.Context, _ string) ([]letta.Step, error) {
	return []letta.Step{{ID: "step-0", CompletionTokens: new(int64(0))}, {ID: "step-1", CompletionTokens: new(int64(7))}}, s.answer(ctx, &s.steps)
}

func (s *shelf) RunMessages(ctx context.Context, _ string) (letta.Messages, error) {
	return letta.Messages{{ID: "message-1"}}, s.answer(ctx, &s.messages)
}

func (s *shelf) PollStepTrace(ctx context.Context, _ string) (*letta.ProviderTrace, error) {
	if err := s.answer(ctx, &s.traces); err != nil || !s.kept.Load() {
		return nil, err
	}
	return letta.Read[letta.ProviderTrace](`{"response_json":{"output_ids":[1,2]},"request_json":{"messages":[{"role":"user","content":"Hi."}]}}`)
}

// Concurrent callers share one request for each thing.
func TestFetchedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := new(shelf)
		s.kept.Store(true)
		r := record.New(s)
		began := time.Now()
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if steps, err := r.Run("run-1").Steps(t.Context()); err != nil || len(steps) != 2 {
					t.Errorf("%d steps, %v", len(steps), err)
				}
			})
			all.Go(func() {
				if messages, err := r.Run("run-1").Messages(t.Context()); err != nil || len(messages) != 1 {
					t.Errorf("%d messages, %v", len(messages), err)
				}
			})
			all.Go(func() {
				trace, err := r.Trace(t.Context(), "step-1")
				if err != nil {
					t.Error(err)
					return
				}
				if answer, err := trace.Answer(); err != nil || !answer.Proves([]int32{1, 2}) || answer.Proves([]int32{1}) {
					t.Errorf("answer %+v, %v", answer, err)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took != time.Second {
			t.Errorf("it took %v, want one second side by side", took)
		}
		if calls, err := r.Run("run-1").Calls(t.Context()); err != nil || len(calls) != 1 || calls[0].ID != "step-1" {
			t.Errorf("calls %v, %v", calls, err)
		}
		if steps, _ := r.Run("run-1").Steps(t.Context()); len(steps) != 2 {
			t.Error("Calls took a step from Steps")
		}
		if got, want := r.Requests(), (record.Requests{Steps: 1, Messages: 1, Traces: 1}); got != want || got.Total() != 3 {
			t.Errorf("requests %+v, want %+v", got, want)
		}
	})
}

// A failed request is repeated by the next caller. If one caller cancels a request, the callers
// that waited make it again.
func TestFailuresAreNotKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := new(shelf)
		s.refuse.Store(1)
		r := record.New(s)
		if _, err := r.Run("run-1").Steps(t.Context()); !errors.Is(err, errRefused) {
			t.Errorf("Steps = %v, want a refusal", err)
		}
		if _, err := r.Run("run-1").Steps(t.Context()); err != nil {
			t.Errorf("Steps again: %v", err)
		}

		short, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := r.Run("run-1").Messages(short); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Messages = %v, want a deadline", err)
			}
		})
		synctest.Wait()
		if messages, err := r.Run("run-1").Messages(t.Context()); err != nil || len(messages) != 1 {
			t.Errorf("%d messages, %v", len(messages), err)
		}
		all.Wait()
	})
}

// A missing trace is remembered as missing, except by TraceSoon.
func TestLateTrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := new(shelf)
		r := record.New(s)
		for range 2 {
			if trace, err := r.TraceSoon(t.Context(), "step-1"); trace != nil || err != nil {
				t.Errorf("TraceSoon = %v, %v, want none", trace, err)
			}
		}
		for range 2 {
			if trace, err := r.Trace(t.Context(), "step-2"); trace != nil || err != nil {
				t.Errorf("Trace = %v, %v, want none", trace, err)
			}
		}
		s.kept.Store(true)
		if trace, err := r.Trace(t.Context(), "step-1"); trace == nil || err != nil {
			t.Errorf("Trace of step-1 = %v, %v, want one", trace, err)
		}
		if trace, _ := r.Trace(t.Context(), "step-2"); trace != nil {
			t.Error("that step-2 has no trace was forgotten")
		}
		if trace, err := r.TraceSoon(t.Context(), "step-2"); trace == nil || err != nil {
			t.Errorf("TraceSoon of step-2 = %v, %v, want one", trace, err)
		}
		if n := s.traces.Load(); n != 5 {
			t.Errorf("%d requests, want 5", n)
		}
	})
}

// AgentNow fetches the agent on each call.
func TestAgentNow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := new(shelf)
		r := record.New(s)
		r.Agent = &letta.AgentState{ID: "agent-1"}
		for range 2 {
			if agent, text, err := r.AgentNow(t.Context()); err != nil || agent.ID != "agent-1" || text != "Be brief." {
				t.Errorf("AgentNow = %v, %q, %v", agent, text, err)
			}
		}
		if got := r.Requests().Agents; got != 4 {
			t.Errorf("%d requests, want 4", got)
		}
	})
}

// A rollout without a server makes and counts no requests.
func TestNoSource(t *testing.T) {
	t.Parallel()
	r := record.New(nil)
	if _, err := r.Trace(t.Context(), "step-1"); err == nil {
		t.Error("Trace = nil, want an error")
	}
	if n := r.Requests().Total(); n != 0 {
		t.Errorf("%d requests", n)
	}
}
