package agent

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
)

// theirs is a text of the server in an error: free of secrets, and not to be shown
// where only collector.Redacted texts are.
type theirs string

// A goneError wraps collector.ErrGone.
type goneError struct {
	error // as a person reads it
	own   string
}

func (e *goneError) Unwrap() error { return e.error }

// Redacted is the error without what a server wrote.
func (e *goneError) Redacted() string { return e.own }

// gone is an error that wraps collector.ErrGone. What of args is theirs, and what
// errors among them quote, is not among its own words.
func gone(format string, args ...any) error {
	own := make([]any, len(args))
	for i, a := range args {
		switch a := a.(type) {
		case theirs:
			own[i] = known(string(a))
		case error:
			own[i] = errors.New(cmp.Or(collector.Redacted(a), "an error")) // for a %w
		default:
			own[i] = a
		}
	}
	return &goneError{
		error: fmt.Errorf("%w: "+format, append([]any{collector.ErrGone}, args...)...),
		own:   fmt.Errorf(format, own...).Error(),
	}
}

// known is a state or a stop reason of the server that we know, and nothing else that
// may stand in its place.
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
