package letta

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/rollout-rl/rollout/collector"
)

// theirs is a text of the server in an error: free of secrets, and not to be shown
// where only collector.Redacted texts are.
type theirs string

// Redacted says what was tried and what came of it, without the server's text.
func (e *APIError) Redacted() string {
	if e.Status != 0 {
		text := http.StatusText(e.Status)
		if text != "" {
			text = " " + text
		}
		return e.Op + ": " + strconv.Itoa(e.Status) + text
	}
	if why := collector.Redacted(e.Err); why != "" {
		return e.Op + ": " + why
	}
	return e.Op + ": failed"
}

// Redacted says that the server run failed, and not why.
func (e *ServerRunError) Redacted() string {
	words := "the server run failed"
	if e.RunID != "" {
		words = "server run " + e.RunID + " failed"
	}
	if of := collector.Redacted(e.Err); of != "" {
		words = of + ", and " + words
	}
	return words
}

// Redacted is the redacted text of both.
func (e *recoverError) Redacted() string {
	words := collector.Redacted(e.cause)
	if why := collector.Redacted(e.why); why != "" {
		words += " (" + why + ")"
	}
	return words
}

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
	if StopReason(word).Known() {
		return word
	}
	return "…"
}
