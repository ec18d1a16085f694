package agent_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettatest"
	"github.com/rollout-rl/rollout/tokenize"
)

// TestTranslate checks that each client sentinel gets its class and that the rest of the error
// stays.
func TestTranslate(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		want collector.Class
	}{
		{nil, collector.ClassNone},
		{letta.ErrBusy, collector.ClassRateLimited},
		{letta.ErrUnavailable, collector.ClassUnavailable},
		{letta.ErrConnection, collector.ClassConnection},
		{letta.ErrIdle, collector.ClassTimeoutIdle},
		{letta.ErrTimeout, collector.ClassTimeoutTotal},
		{letta.ErrServer, collector.ClassServerError},
		{letta.ErrRejected, collector.ClassBadRequest},
		{letta.ErrAuth, collector.ClassAuth},
		{letta.ErrUnusable, collector.ClassUnusable},
		{&letta.NoTurnsError{Why: "x"}, collector.ClassUnusable},
		{&tokenize.DecodeError{Err: tokenize.ErrTooLarge}, collector.ClassDecode},
		{context.DeadlineExceeded, collector.ClassTimeoutTotal},
		{context.Canceled, collector.ClassCancelled},
		{errors.Join(letta.ErrServer, letta.ErrAuth), collector.ClassAuth},
		{fmt.Errorf("%w: %w", collector.ErrGone, letta.ErrRejected), collector.ClassLost},
		{errors.New("unknown"), collector.ClassInternal},
	} {
		if got := collector.Classify(agent.Translate(test.err)); got != test.want {
			t.Errorf("Translate(%v) is of class %v, want %v", test.err, got, test.want)
		}
		if test.err == nil {
			continue
		}
		call := fmt.Errorf("server http://a: %w", &letta.APIError{Op: "send", Status: http.StatusTeapot, Detail: "prose", Err: test.err, RetryAfter: 7})
		got := agent.Translate(call)
		found := (*letta.APIError)(nil)
		if collector.Classify(got) != test.want || got.Error() != call.Error() || !errors.Is(got, test.err) || !errors.As(got, &found) || found.RetryDelay() != 7 {
			t.Errorf("Translate(%v) = %v of class %v, want class %v", call, got, collector.Classify(got), test.want)
		}
		if text := collector.Redacted(got); text != "send: 418 I'm a teapot" {
			t.Errorf("the redacted text of %v is %q", got, text)
		}
	}
}

// TestTranslateEnded checks that the cause of a context's end is shown only if it is safe.
func TestTranslateEnded(t *testing.T) {
	t.Parallel()
	client := lettatest.Serve(t, http.NotFound)
	for _, test := range []struct {
		name  string
		cause error
		class collector.Class
		want  string
	}{
		{"a stop", errors.New("the run is stopping"), collector.ClassCancelled, "health: the run is stopping"},
		{"the attempt's time", fmt.Errorf("%w: the attempt exceeded its time limit", collector.ErrTimeout), collector.ClassTimeoutTotal, "health: collector: timeout: the attempt exceeded its time limit"},
		{"a refusal that quotes", fmt.Errorf("%w: prose", collector.ErrAuth), collector.ClassAuth, "health: failed"},
		{"a call that quotes", &letta.APIError{Op: "agent", Status: 500, Detail: "prose", Err: letta.ErrServer}, collector.ClassServerError, "health: agent: 500 Internal Server Error"},
	} {
		ctx, end := context.WithCancelCause(t.Context())
		end(test.cause)
		_, err := client.Health(ctx)
		got := agent.Translate(fmt.Errorf("x: %w", err))
		if collector.Classify(got) != test.class || got.Error() != "x: "+err.Error() {
			t.Errorf("%s: %v of class %v, want %v", test.name, got, collector.Classify(got), test.class)
		}
		if text := collector.Redacted(got); text != test.want {
			t.Errorf("%s: %q, want %q", test.name, text, test.want)
		}
	}
}
