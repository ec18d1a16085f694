package agent

import (
	"context"
	"errors"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
)

// meanings maps the sentinels of package letta to sentinels of package collector.
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

// Translate returns an error that wraps err and has the same text. If err matches sentinels of
// package letta, the returned error also matches the corresponding sentinels of package collector,
// so that [collector.Classify] can classify it.
//
// Every error that leaves this package is translated. Code that calls a [letta.Client] directly
// must translate its errors itself.
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

// A translated error adds sentinels of package collector to an error and keeps its text.
type translated struct {
	error
	chain []error // the first element is the error itself
}

func (e *translated) Unwrap() []error { return e.chain }

// An endedError is the error of a client call that ended because its caller's context ended.
type endedError struct {
	translated
	call *letta.APIError
}

// Redacted returns the redacted reason why the context ended. Package collector redacts the reason,
// because the client does not know the errors of its caller.
func (e *endedError) Redacted() string {
	if why := collector.Redacted(e.call.Err); why != "" {
		return e.call.Op + ": " + why
	}
	return e.call.Redacted()
}

// endedByCaller returns the error of an unanswered client call that ended because its context
// ended. It reports whether err contains such an error. As in [collector.Redacted], only the first
// error in the chain that has a method Redacted counts.
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

// A classed error wraps a sentinel and a cause. Its message is the message of the cause.
type classed struct{ class, cause error }

func (c *classed) Error() string   { return c.cause.Error() }
func (c *classed) Unwrap() []error { return []error{c.class, c.cause} }
