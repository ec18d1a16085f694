package collector

import (
	"context"
	"time"

	"github.com/rollout-rl/rollout/collector/wait"
)

// A placement is the state of a sample at its endpoint: its permit, and its waits for a permit. The
// worker that holds the sample owns the placement.
type placement struct {
	ep       *endpoint
	permit   *permit       // nil while the sample waits for a permit
	queuedAt time.Time     // start of the wait for a permit
	roomWait time.Duration // total wait for permits since the last attempt
	moved    bool          // the sample comes from another endpoint
}

// A next is the action that a worker must take next for its sample.
type next uint8

const (
	try       next = iota // make the first or the next attempt
	elsewhere             // move the sample to another endpoint
	cut                   // append the sample as cut
	over                  // do nothing: the sample is in the sink or must be run later
)

// acquire waits for a permit for the sample and then returns try. If acquire returns another
// action, the sample must not be attempted at this endpoint. The parameter open is the attempt to
// take over, or nil. An error ends the run.
func (p *placement) acquire(ctx context.Context, cutoff cutoff, open *OpenAttempt) (next, error) {
	c := p.ep.c
	for {
		away := p.moveFlag(open).raised().Done()
		switch {
		case ctx.Err() != nil:
			return over, context.Cause(ctx)
		case cutoff.cause() != nil:
			return cut, nil //nolint:nilerr // the cause is the cut itself
		case c.stopping(ctx):
			return over, nil // the sample must be run later
		case p.mustMove(open):
			return elsewhere, nil
		case p.permit != nil && p.ep.gate.use(p.permit):
			waited := time.Since(p.queuedAt)
			p.roomWait += waited
			c.counters.update(func(s *Stats) { s.AdmissionWait += waited })
			return try, nil
		}
		until, stop := cutoff.context(ctx)
		p.permit = p.ep.gate.enter(until, true, p.ep.lost, c.drain, away)
		stop()
	}
}

// hold waits for the duration d. It returns earlier if the sample is cut or must move, or if the
// run is drained. The sample keeps its permit for the first second. Otherwise a server that refuses
// every sample would get all samples in quick succession. An error ends the run.
func (p *placement) hold(ctx context.Context, d time.Duration, cutoff cutoff, open *OpenAttempt) error {
	until, stop := cutoff.context(ctx)
	defer stop()
	away := p.moveFlag(open).raised().Done()
	moment := min(d, time.Second)
	wait.For(until, moment, p.ep.lost, away, p.ep.c.drain)
	p.leave()
	wait.For(until, d-moment, p.ep.lost, away, p.ep.c.drain)
	return context.Cause(ctx)
}

func (p *placement) leave() {
	p.ep.gate.leave(p.permit)
	p.permit = nil
}

func (p *placement) isProbe() bool { return p.permit != nil && p.permit.probe }

// mustMove reports whether the sample must move to another endpoint. An open attempt can be taken
// over only at its own server, so it stays until that server has been down for Config.Outage. A
// sample that serves as a probe also stays.
func (p *placement) mustMove(open *OpenAttempt) bool {
	if _, lost := p.ep.state(); lost {
		return true
	}
	return !p.isProbe() && p.moveFlag(open).isUp()
}

// moveFlag returns the flag that is raised when the sample must move.
func (p *placement) moveFlag(open *OpenAttempt) *flag {
	if open != nil && p.ep.reattaches(open) {
		return &p.ep.overdue
	}
	return &p.ep.away
}
