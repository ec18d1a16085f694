package agent

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
)

// post sends, and looks the send up where it is silent for long: its run is told to
// Progress, and once that is over the answer must begin within LostAfter.
func (g *agent) post(ctx context.Context, o letta.SendOptions) (*letta.LettaResponse, error) {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	answered, stop := context.WithCancel(ctx)
	defer stop()
	watched := make(chan struct{})
	timer := time.AfterFunc(g.cfg.SilentAfter, func() {
		defer close(watched)
		g.watch(answered, giveUp)
	})
	defer func() {
		if !timer.Stop() {
			stop()
			<-watched
		}
	}()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotFirstResponseByte: stop})
	return g.client.SendWith(ctx, o)
}

// watch looks the newest run of the agent up until the answer begins.
func (g *agent) watch(answered context.Context, giveUp context.CancelCauseFunc) {
	steps, grew := 0, time.Now().Add(-g.cfg.SilentAfter)
	for {
		run, err := g.client.LastRun(answered, g.state.ID)
		if err == nil && run != nil && !g.knows(run.ID) {
			list, err := g.client.RunSteps(answered, run.ID)
			if err == nil && len(list) != steps {
				steps, grew = len(list), time.Now()
			}
			g.learned(run.ID)
			g.progress(run.ID, steps, time.Since(grew))
			if over(run) || err == nil && g.conversation != nil && endedByStep(list) {
				if sleep(answered, g.cfg.LostAfter) == nil {
					giveUp(letta.ErrAnswerLost)
				}
				return
			}
		}
		if sleep(answered, g.cfg.SilentAfter) != nil {
			return
		}
	}
}

// lost says that the connection was lost while the server may have been at work, and
// not that this side stopped waiting, or never reached it.
func lost(err error) bool {
	if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
		return false
	}
	e := (*letta.APIError)(nil)
	if !errors.As(err, &e) {
		return false
	}
	switch e.Status {
	case http.StatusRequestTimeout, http.StatusBadGateway, http.StatusGatewayTimeout:
		return true // a proxy's, which does not wait any longer
	}
	return e.Status == 0 && (errors.Is(err, letta.ErrConnection) || errors.Is(err, letta.ErrIdle))
}

// recover takes over the server run of a send whose connection was lost. The send is
// not repeated: the run goes on without anybody who waits, or is over, and what it
// made is taken from the server's memory. Where that cannot be had, the error is that
// of the send, with the reason.
func (g *agent) recover(ctx context.Context, cause error, messages letta.InputMessages, made bool, reply *collector.Reply) (*letta.LettaResponse, error) {
	g.outage = false
	run, err := g.newRun(ctx, len(reply.Sends))
	if errors.Is(err, collector.ErrGone) {
		return nil, notRecovered(ctx, cause, err)
	}
	if err != nil || run == nil {
		return nil, cause // it may never have come to the server
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
	answer, err := g.remember(ctx, m, messages, made, reply)
	if err != nil {
		return nil, notRecovered(ctx, cause, err)
	}
	reply.Sends[len(reply.Sends)-1].Lost = Translate(cause)
	return answer, nil
}

// A recoverError is a lost connection and why its run could not be taken over. Only
// the former says what the failure is.
type recoverError struct{ cause, why error }

func (e *recoverError) Error() string { return e.cause.Error() + " (" + e.why.Error() + ")" }
func (e *recoverError) Unwrap() error { return e.cause }

// Redacted is the redacted text of both.
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

// newRun is the run of the agent after those of the sends that were answered. A request
// that was just lost may still be on its way: it is looked for several times. Several
// new runs are no answer: a proxy that lost the connection sent the request again, and
// what one of them was given as context holds pieces of the other.
func (g *agent) newRun(ctx context.Context, answered int) (*letta.Run, error) {
	const tries, pause = 4, 500 * time.Millisecond
	for i := 1; ; i++ {
		var runs []letta.Run
		err := g.patiently(ctx, func() (err error) {
			runs, err = g.serverRuns(ctx)
			return err
		})
		switch {
		case err != nil:
			return nil, err
		case len(runs) > answered+1:
			return nil, gone("agent %s has %d server runs for %d sends", g.state.ID, len(runs), answered+1)
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
