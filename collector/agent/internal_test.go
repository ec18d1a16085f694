package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettatest"
	"github.com/rollout-rl/rollout/collector/record"
)

// TestLastSign checks that changes and offsets of either clock do not affect a run's silence.
func TestLastSign(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		ahead time.Duration
		age   time.Duration // of the run by the server's clock
		want  time.Duration
	}{
		{"clocks agree", 0, 5 * time.Minute, 5 * time.Minute},
		{"the server is a year ahead", 365 * 24 * time.Hour, 5 * time.Minute, 5 * time.Minute},
		{"the server is a year behind", -365 * 24 * time.Hour, 5 * time.Minute, 5 * time.Minute},
		{"its clock went back since", 0, -time.Hour, 0},
	} {
		client := lettatest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Date"] = []string{time.Now().Add(test.ahead).UTC().Format(http.TimeFormat)}
			if r.URL.Path == "/v1/health/" {
				_, _ = io.WriteString(w, `{}`)
				return
			}
			_, _ = io.WriteString(w, `[]`)
		})
		if _, err := client.Health(t.Context()); err != nil { // learns the server's clock, to the second
			t.Fatal(err)
		}
		began := letta.Time(time.Now().Add(test.ahead - test.age - time.Second).UTC().Format(time.RFC3339Nano))
		last, err := (&agent{client: client}).lastSign(t.Context(), &letta.Run{ID: "run-1", CreatedAt: began})
		if err != nil {
			t.Fatal(err)
		}
		if silent := time.Since(last); silent < test.want || silent > test.want+time.Minute {
			t.Errorf("%s: silent for %v, want %v", test.name, silent, test.want)
		}
		if !strings.Contains(last.String(), " m=") {
			t.Errorf("%s: %v has no monotonic part", test.name, last)
		}
	}
}

// TestRedacted checks that redacted errors say what happened without server text.
func TestRedacted(t *testing.T) {
	t.Parallel()
	const prose = "canary prose"
	refused := &letta.APIError{Op: "agent", Status: 404, Code: prose, Detail: prose, Err: letta.ErrRejected}
	reset := &letta.APIError{Op: "send", Err: &classed{letta.ErrConnection, errors.New("read: connection reset by peer")}}
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{"a status", refused, "agent: 404 Not Found"},
		{"one without a name", &letta.APIError{Op: "send", Status: 599, Detail: prose, Err: letta.ErrServer}, "send: 599"},
		{"no answer", reset, "send: read: connection reset by peer"},
		{"an answer that cannot be read", &letta.APIError{Op: "send", Err: &classed{letta.ErrServer, errors.New(prose)}}, "send: failed"},
		{
			"a server run", &ServerRunError{RunID: "run-1", Type: prose, Message: prose, Err: &letta.APIError{Op: "send", Status: 500, Err: letta.ErrServer}},
			"send: 500 Internal Server Error, and server run run-1 failed",
		},
		{"gone", goneErrorf("server run %s has status %s and made no progress for %v", "run-1", serverText("created"), "15m0s"), "server run run-1 has status created and made no progress for 15m0s"},
		{"gone, in words of the server", goneErrorf("server run %s has status %s and stop reason %s", "run-1", serverText(prose), serverText("llm_api_error")), "server run run-1 has status … and stop reason llm_api_error"},
		{"gone, for a call", goneErrorf("agent %s: %w", "agent-1", refused), "agent agent-1: agent: 404 Not Found"},
		{"gone, for something else", goneErrorf("trace of step %s: %w", "step-1", errors.New(prose)), "trace of step step-1: an error (its text is not shown)"},
		{"lost, and not recovered", &recoverError{reset, goneErrorf("step %s has status %s", "step-1", serverText(prose))}, "send: read: connection reset by peer (step step-1 has status …)"},
	} {
		wrapped := &collector.AttemptError{Task: prose, Err: fmt.Errorf("x: %w", tt.err)}
		if got := collector.Redacted(wrapped); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		if strings.HasPrefix(tt.name, "gone") != errors.Is(tt.err, collector.ErrGone) {
			t.Errorf("%s: %v wraps ErrGone, or does not", tt.name, tt.err)
		}
	}
	if err := goneErrorf("step %s has status %s", "step-1", serverText(prose)); err.Error() != collector.ErrGone.Error()+": step step-1 has status "+prose {
		t.Errorf("a person reads %q", err)
	}
}

func TestReplyRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		r := newReplyLimiter(100)
		take := func(length int64, first bool) int64 {
			n, err := r.acquire(ctx, length, first)
			if err != nil {
				t.Errorf("take(%d): %v", length, err)
			}
			return n
		}
		if n := take(60, true); n != 60 {
			t.Errorf("a reply of 60 bytes took %d", n)
		}
		if n := take(60, false); n != 0 {
			t.Errorf("a later reply without room took %d, want 0", n)
		}
		if n := take(40, false); n != 40 {
			t.Errorf("a later reply for which there is room took %d, want 40", n)
		}

		var taken int64
		go func() { taken = take(1000, true) }() // larger than the whole room: passes alone
		synctest.Wait()
		if taken != 0 {
			t.Errorf("the first reply of another agent took %d of a full room", taken)
		}
		r.release(60)
		synctest.Wait()
		if taken != 0 {
			t.Errorf("a reply larger than the room took %d while others hold some", taken)
		}
		r.release(40)
		synctest.Wait()
		if taken != 100 {
			t.Errorf("a reply larger than the room took %d of it, want all 100", taken)
		}

		ended, end := context.WithCancel(ctx)
		var err error
		go func() { _, err = r.acquire(ended, -1, true) }()
		synctest.Wait()
		end()
		synctest.Wait()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("waiting ended with %v, want the context's error", err)
		}
		r.release(100)
		if !r.free.TryAcquire(100) {
			t.Error("room is lost")
		}
	})
}

// Held reports whether any agent holds room for replies.
func Held(b *Backend) bool {
	if !b.room.free.TryAcquire(b.room.size) {
		return true
	}
	b.room.release(b.room.size)
	return false
}

// TestHidden checks that a client's result marks every later call that sees it, in any run.
func TestHidden(t *testing.T) {
	t.Parallel()
	answers := func(list ...letta.Approval) letta.Messages {
		return letta.Messages{{Type: letta.TypeApprovalResponse, Approvals: list}}
	}
	shown := []callRecord{{shown: []letta.TraceMessage{{Role: "user"}, {Role: "assistant"}, {Role: "tool", ToolCallID: "a"}}}}
	for _, test := range []struct {
		name        string
		before, own letta.Messages
		want        bool
	}{
		{"nothing was asked", nil, nil, false},
		{"the client's", nil, answers(letta.Approval{Type: "tool", ToolCallID: "a"}), true},
		{"the client's, earlier", answers(letta.Approval{Type: "tool", ToolCallID: "a"}), nil, true},
		{"denied", nil, answers(letta.Approval{Type: "approval", ToolCallID: "a"}), true},
		{"approved", answers(letta.Approval{Type: "approval", ToolCallID: "a", Approve: true}), nil, false},
		{"not shown any more", answers(letta.Approval{Type: "tool", ToolCallID: "b"}), nil, false},
	} {
		m := &runRecord{messages: test.own}
		if got := m.sawEmptyResult(test.before, shown); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

// TestAnswerWithoutOTID rebuilds an answer whose stored messages have no otid. The call takes the
// otid of the text before it and must still be valid JSON.
func TestAnswerWithoutOTID(t *testing.T) {
	t.Parallel()
	stored, err := letta.Read[letta.Messages](`[
		{"message_type":"assistant_message","id":"message-1","step_id":"step-1","content":"let me see"},
		{"message_type":"tool_call_message","id":"message-1","step_id":"step-1","otid":"b","tool_calls":[]},
		{"message_type":"assistant_message","id":"message-2","step_id":"step-2","content":"done"}]`)
	if err != nil {
		t.Fatal(err)
	}
	m := &runRecord{steps: []letta.Step{{ID: "step-1"}, {ID: "step-2"}}, messages: *stored}
	r := record.New(nil)
	r.Sends = []record.Send{{Request: &letta.LettaRequest{}, Response: &letta.LettaResponse{Messages: m.answer(0, true)}}}
	text, err := r.Conversed()
	if err != nil {
		t.Fatal(err)
	}
	var list []struct {
		OTID *string `json:"otid"`
	}
	if err := json.Unmarshal(text, &list); err != nil || len(list) != 2 || list[0].OTID != nil {
		t.Errorf("%v\n%s", err, text)
	}
}

// TestStoredResultWithoutText reads an answer to pending calls whose stored result has no text.
func TestStoredResultWithoutText(t *testing.T) {
	t.Parallel()
	for _, result := range []string{``, `,"tool_return":null`} {
		stored, err := letta.Read[[]letta.Approval](`[{"type":"tool","tool_call_id":"call-1","status":"success"` + result + `}]`)
		if err != nil {
			t.Fatal(err)
		}
		message, _ := approvalInput(*stored)
		if sent := (letta.InputMessages{message}); !sameInput(sent, sent) {
			t.Errorf("with %q: it is not the same as itself", result)
		}
	}
}
