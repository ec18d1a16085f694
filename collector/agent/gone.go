package agent

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/tokenize"
)

// A serverText is a text of the server in an error. It holds no secrets; the redacted text
// of the error leaves it out.
type serverText string

// A goneError wraps collector.ErrGone.
type goneError struct {
	error    // as a person reads it
	redacted string
	// reason is why no other reader of the record would get more; ReasonNone: it is not said.
	reason tokenize.Reason
	// text is the error without the sentinel.
	text string
}

func (e *goneError) Unwrap() error { return e.error }

// Redacted returns the text of the error without what a server wrote.
func (e *goneError) Redacted() string { return e.redacted }

// gone returns an error that wraps collector.ErrGone. Its redacted text leaves out what of
// args is a serverText, and what errors among args quote.
func gone(format string, args ...any) error { return goneBy(tokenize.ReasonNone, format, args...) }

// goneBy is gone with the reason for which the tokens of a call are not known.
func goneBy(reason tokenize.Reason, format string, args ...any) error {
	shown := make([]any, len(args))
	for i, a := range args {
		switch a := a.(type) {
		case serverText:
			shown[i] = known(string(a))
		case error:
			shown[i] = errors.New(cmp.Or(collector.Redacted(a), "an error")) // for a %w
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

// known returns word where it is a state or a stop reason of the server that we know, and
// else a mark that it was left out.
func known(word string) string {
	switch word {
	case "created", "running", "completed", "failed", "cancelled", "pending", "success", "":
		return word
	}
	if letta.StopReason(word).Known() {
		return word
	}
	return "…"
}

// quote returns a text of the server for an error.
func (g *agent) quote(text string) serverText { return serverText(g.client.Redact(text)) }
