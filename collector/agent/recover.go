package agent

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
)

// connectionLost reports whether the connection was lost while the server might have been working.
// This is the case if the client reached the server and did not itself stop waiting.
func connectionLost(err error) bool {
	if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
		return false
	}
	e := (*letta.APIError)(nil)
	if !errors.As(err, &e) {
		return false
	}
	switch e.Status {
	case http.StatusRequestTimeout, http.StatusBadGateway, http.StatusGatewayTimeout:
		return true // a proxy stopped waiting for the server
	}
	return e.Status == 0 && (errors.Is(err, letta.ErrConnection) || errors.Is(err, letta.ErrIdle))
}

// recoverSend finds the answer to a send whose connection was lost. It does not repeat the send. It
// waits for the end of the server run and rebuilds the answer from the server's record. If this
// fails, recoverSend returns the error of the send with the reason.
func (g *agent) recoverSend(ctx context.Context, in *input, cause error) (*letta.LettaResponse, error) {
	g.outage.Store(false)
	run, err := g.findNewRun(ctx, len(g.reply.Sends))
	if errors.Is(err, collector.ErrGone) {
		return nil, notRecovered(ctx, cause, err)
	}
	if err != nil || run == nil {
		return nil, cause // the request might never have reached the server
	}
	m, err := g.await(ctx, run.ID)
	if err != nil {
		return nil, notRecovered(ctx, cause, err)
	}
	if m.run.Status == "failed" && m.run.StopReason == "" {
		if e := (*letta.APIError)(nil); errors.As(cause, &e) {
			return nil, g.runError(ctx, m.run, e)
		}
		return nil, cause
	}
	answer, err := g.rebuildSend(ctx, m, in, cause)
	if err != nil {
		return nil, notRecovered(ctx, cause, err)
	}
	return answer, nil
}

// A recoverError reports that a connection was lost (cause) and that the answer could not be
// recovered (why). Only cause determines the class of the error.
type recoverError struct{ cause, why error }

func (e *recoverError) Error() string { return e.cause.Error() + " (" + e.why.Error() + ")" }
func (e *recoverError) Unwrap() error { return e.cause }

func (e *recoverError) Redacted() string {
	words := collector.Redacted(e.cause)
	if why := collector.Redacted(e.why); why != "" {
		words += " (" + why + ")"
	}
	return words
}

func notRecovered(ctx context.Context, cause, why error) error {
	if ctx.Err() != nil {
		return &classed{ctx.Err(), context.Cause(ctx)}
	}
	return &recoverError{cause, why}
}

// findNewRun returns the server run of the unanswered send, or nil. It polls, because a request can
// still arrive after its connection was lost. If it finds several new runs, a proxy has repeated
// the request, and the context of one run contains parts of the other. findNewRun then returns an
// error.
func (g *agent) findNewRun(ctx context.Context, answered int) (*letta.Run, error) {
	const tries, pause = 4, 500 * time.Millisecond
	for i := 1; ; i++ {
		var runs []letta.Run
		err := g.retryLookup(ctx, func() (err error) {
			runs, err = g.serverRuns(ctx)
			return err
		})
		switch {
		case err != nil:
			return nil, err
		case len(runs) > answered+1:
			return nil, goneErrorf("agent %s has more server runs (%d) than sends (%d)", g.state.ID, len(runs), answered+1)
		case len(runs) == answered+1:
			return &runs[answered], nil
		case i == tries:
			return nil, nil
		}
		if err := sleep(ctx, pause); err != nil {
			return nil, err
		}
	}
}
