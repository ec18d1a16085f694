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
// where only collector.OwnWords are.
type theirs string

// OwnWords says what was tried and what came of it, without the server's text.
func (e *APIError) OwnWords() string {
	if e.Status != 0 {
		text := http.StatusText(e.Status)
		if text != "" {
			text = " " + text
		}
		return e.Op + ": " + strconv.Itoa(e.Status) + text
	}
	if why := collector.OwnWords(e.Err); why != "" {
		return e.Op + ": " + why
	}
	return e.Op + ": failed"
}

// OwnWords says that the server run failed, and not why.
func (e *ServerRunError) OwnWords() string {
	words := "the server run failed"
	if e.RunID != "" {
		words = "server run " + e.RunID + " failed"
	}
	if of := collector.OwnWords(e.Err); of != "" {
		words = of + ", and " + words
	}
	return words
}

// OwnWords is both of them in their own words.
func (e *recoverError) OwnWords() string {
	words := collector.OwnWords(e.cause)
	if why := collector.OwnWords(e.why); why != "" {
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

// OwnWords is the error without what a server wrote.
func (e *goneError) OwnWords() string { return e.own }

// gone is an error that wraps collector.ErrGone. What of args is theirs, and what
// errors among them quote, is not among its own words.
func gone(format string, args ...any) error {
	own := make([]any, len(args))
	for i, a := range args {
		switch a := a.(type) {
		case theirs:
			own[i] = known(string(a))
		case error:
			own[i] = errors.New(cmp.Or(collector.OwnWords(a), "an error")) // for a %w
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
