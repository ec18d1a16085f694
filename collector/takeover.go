package collector

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// take notes what earlier processes left of the sample.
func (cl *claim) take(left *Left) {
	cl.attempts, cl.charged, cl.rerolled = left.Attempts, left.Charged, left.Rerolled
	cl.paid, cl.left, cl.failed = left.Charged, left.Open, left.Failed
	if cl.left != nil {
		cl.attempts = max(cl.attempts, cl.left.N) // no number twice, whatever Left says
	}
	if cl.failed != ClassNone {
		cl.charged, cl.rerolled, cl.paid = 0, 0, 0
	}
	cl.kind = kindAfter(cl.failed, cl.attempts)
}

// upcoming is the first attempt that is to be made.
func (cl *claim) upcoming(runID string) Attempt {
	a := cl.attempt(runID)
	if cl.left != nil {
		a.N, a.Kind = cl.left.N, KindReattach
	} else {
		a.N++
	}
	return a
}

// kindAfter is the kind of the attempt after n others, of which the last failed so.
func kindAfter(class Class, n int) Kind {
	switch {
	case n == 0:
		return KindFirst
	case class.Rerollable():
		return KindDataRetry
	}
	return KindInfraRetry
}

// next advances the claim to its next attempt: the open one of an earlier process, where
// this worker can take it over, else a new one.
func (w *worker) next(cl *claim) error {
	if cl.left != nil && !w.reattaches(cl.left) {
		if err := w.gone(cl, cl.left.N, safeError{fmt.Errorf("%w: it was made at %q", ErrGone, cl.left.Endpoint)}); err != nil {
			return err
		}
	}
	cl.alive = false
	cl.took, cl.why = 0, ""
	cl.tries++
	if cl.left != nil {
		cl.attempts, cl.kind = cl.left.N, KindReattach
		return nil
	}
	cl.attempts++
	if j := w.c.cfg.Journal; j != nil {
		return journaled(j.Begin(cl.attempt(w.c.cfg.RunID), w.ep.Name))
	}
	return nil
}

// reattaches says that this worker can take the attempt over.
func (w *worker) reattaches(left *OpenAttempt) bool {
	_, ok := w.ep.Backend.(Reattacher)
	return ok && left.Endpoint == w.ep.Name
}

// gone gives open attempt n up: nothing of it can be taken over. What looking for it was
// charged is given back.
func (w *worker) gone(cl *claim, n int, err error) error {
	last := cl.attempts
	cl.attempts, cl.kind = n, KindReattach
	w.c.counters.reattached(true)
	w.c.counters.rerolled(cl, ClassLost)
	if !errors.Is(err, ErrGone) {
		err = fmt.Errorf("%w: %w", ErrGone, err)
	}
	cl.charged = cl.paid
	w.c.cfg.Events.reattached(cl.attempt(w.c.cfg.RunID), w.ep.Name, err)
	ended := w.end(cl, ClassLost, false)
	cl.left, cl.kind, cl.attempts = nil, KindInfraRetry, last
	return ended
}

// open makes the agent of the attempt, or finds the one that an earlier process made,
// and notes it.
func (t *try) open(ctx context.Context) (Agent, error) {
	c, left := t.w.c, t.cl.left
	a := t.a
	if c.cfg.Journal != nil {
		a.ServerRun = c.serverRun(&a, left)
	}
	if away := t.w.ep.away.raised(); left == nil && len(c.endpoints) > 1 && away.Err() == nil {
		a.Away = away.Done()
	}
	var agent Agent
	var err error
	if left != nil {
		agent, err = t.w.ep.Backend.(Reattacher).Reattach(ctx, a, *left) //nolint:forcetypeassert // next has looked
	} else {
		agent, err = t.w.ep.Backend.Open(ctx, a)
	}
	if err != nil || c.cfg.Journal == nil || left != nil && left.AgentID == agent.ID() {
		return agent, err
	}
	return agent, journaled(c.cfg.Journal.Agent(a.Key, a.N, agent.ID()))
}

// serverRun notes the server runs of the attempt but for those that are known.
func (c *Collector) serverRun(a *Attempt, left *OpenAttempt) func(id string) {
	key, n := a.Key, a.N
	return func(id string) {
		if left != nil && slices.Contains(left.ServerRuns, id) {
			return
		}
		if err := c.cfg.Journal.ServerRun(key, n, id); err != nil {
			(*c.stop.Load())(journaled(err))
		}
	}
}

// end notes how the attempt ended.
func (w *worker) end(cl *claim, class Class, charged bool) error {
	if j := w.c.cfg.Journal; j != nil {
		return journaled(j.End(cl.key, cl.attempts, class, charged))
	}
	return nil
}

// journaled is the error of a run whose journal failed.
func journaled(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: journal: %w", ErrStorage, err)
}
