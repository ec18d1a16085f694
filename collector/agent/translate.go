package agent

import (
	"context"
	"errors"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
)

// meanings says what a failed call of the client means to a run.
var meanings = [...]struct{ call, run error }{
	{letta.ErrBusy, collector.ErrBusy},
	{letta.ErrUnavailable, collector.ErrUnavailable},
	{letta.ErrConnection, collector.ErrConnection},
	{letta.ErrIdle, collector.ErrIdle},
	{letta.ErrTimeout, collector.ErrTimeout},
	{letta.ErrServer, collector.ErrServer},
	{letta.ErrRejected, collector.ErrRejected},
	{letta.ErrAuth, collector.ErrAuth},
	{letta.ErrUnusable, collector.ErrUnusable},
}

// Translate returns err so that it matches, beside the sentinels of package letta that it
// wraps, those of package collector that mean the same: [collector.Classify] and whatever
// else looks at the latter know it then. Its text stays.
//
// Every error that leaves this package is translated. Whoever calls a [letta.Client]
// directly translates for itself.
func Translate(err error) error {
	if err == nil {
		return nil
	}
	chain := []error{err}
	for _, m := range meanings {
		if errors.Is(err, m.call) && !errors.Is(err, m.run) {
			chain = append(chain, m.run)
		}
	}
	if call, ended := endedByCaller(err); ended {
		return &endedError{translated{err, chain}, call}
	}
	if len(chain) == 1 {
		return err
	}
	return &translated{err, chain}
}

// A translated error reads as it did, and wraps sentinels of package collector too.
type translated struct {
	error
	chain []error // the error itself first
}

func (e *translated) Unwrap() []error { return e.chain }

// An endedError is a call that ended with the context of its caller.
type endedError struct {
	translated
	call *letta.APIError
}

// Redacted shows the cause of the context's end as far as package collector would: the
// client cannot know what its caller's causes quote.
func (e *endedError) Redacted() string {
	if why := collector.Redacted(e.call.Err); why != "" {
		return e.call.Op + ": " + why
	}
	return e.call.Redacted()
}

// endedByCaller reports whether err is a call without an answer that ended with its
// context, and returns that call. The first error with a redacted text counts, as in
// [collector.Redacted].
func endedByCaller(err error) (*letta.APIError, bool) {
	type redacted interface {
		error
		Redacted() string
	}
	first, ok := errors.AsType[redacted](err)
	if !ok {
		return nil, false
	}
	call, ok := first.(*letta.APIError)
	if !ok || call.Status != 0 {
		return nil, false
	}
	return call, errors.Is(call.Err, context.Canceled) || errors.Is(call.Err, context.DeadlineExceeded)
}
