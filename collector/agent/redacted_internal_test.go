package agent

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
)

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
		{"gone, for something else", goneErrorf("trace of step %s: %w", "step-1", errors.New(prose)), "trace of step step-1: an error"},
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
