package agent

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/tokenize"
)

// A serverText is a part of an error that contains text from the server. The text contains no
// secrets. The redacted error omits this text.
type serverText string

type goneError struct {
	error    // the full error
	redacted string
	// reason explains why the record lacks tokens of a call. It is ReasonNone if the cause is
	// unknown.
	reason tokenize.Reason
	// text is the text of the error without the sentinel.
	text string
}

func (e *goneError) Unwrap() error { return e.error }

func (e *goneError) Redacted() string { return e.redacted }

// goneErrorf returns an error that wraps collector.ErrGone. In its redacted text, serverText
// arguments are omitted and error arguments are redacted.
func goneErrorf(format string, args ...any) error {
	return goneReasonf(tokenize.ReasonNone, format, args...)
}

// goneReasonf is like goneErrorf and also records the reason why the tokens of a call are unknown.
func goneReasonf(reason tokenize.Reason, format string, args ...any) error {
	shown := make([]any, len(args))
	for i, a := range args {
		switch a := a.(type) {
		case serverText:
			shown[i] = knownState(string(a))
		case error:
			shown[i] = errors.New(cmp.Or(collector.Redacted(a), "an error (its text is not shown)")) // must be an error, because its verb can be %w
		default:
			shown[i] = a
		}
	}
	return &goneError{
		error:    fmt.Errorf("%w: "+format, append([]any{collector.ErrGone}, args...)...),
		redacted: fmt.Errorf(format, shown...).Error(),
		reason:   reason, text: fmt.Errorf(format, args...).Error(),
	}
}

// knownState returns word if it is a known state or stop reason of the server, and "…" otherwise.
func knownState(word string) string {
	switch word {
	case "created", "running", "completed", "failed", "cancelled", "pending", "success", "":
		return word
	}
	if letta.StopReason(word).Known() {
		return word
	}
	return "…"
}

func (g *agent) redactText(text string) serverText { return serverText(g.client.Redact(text)) }
