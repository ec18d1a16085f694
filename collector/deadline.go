package collector

import (
	"context"
	"strings"
	"time"
)

// atDeadline is the prefix of a deadlineError's text, which failure rows store.
const atDeadline = "collector: cut at the task's deadline, "

// CutAtDeadline reports whether a failure with this class and text cut its sample at the deadline
// of its task, and not by the tail policy. Text of the server can only follow the prefix.
func CutAtDeadline(class, text string) bool {
	at, tail := strings.Index(text, atDeadline), strings.Index(text, ErrCensored.Error())
	return class == ClassCensored.String() && at >= 0 && (tail < 0 || at < tail)
}

type deadlineError struct{ at time.Time }

func (e *deadlineError) Error() string {
	return atDeadline + e.at.UTC().Format(time.RFC3339)
}

func (e *deadlineError) Unwrap() error { return ErrCensored }

// deadline returns when the samples of the task are cut; zero: never. RetryFailed ignores
// deadlines: the user wants the samples, however late.
func (c *Collector) deadline(t *Task) time.Time {
	if c.cfg.RetryFailed {
		return time.Time{}
	}
	return t.Deadline
}

func (c *Collector) late(cl *claim) error {
	if at := c.deadline(cl.task); !at.IsZero() && !time.Now().Before(at) {
		return &deadlineError{at}
	}
	return nil
}

// untilDeadline returns a ctx that ends with a *deadlineError at the deadline of the task. The
// caller must call the function.
func (c *Collector) untilDeadline(ctx context.Context, t *Task) (context.Context, context.CancelFunc) {
	if at := c.deadline(t); !at.IsZero() {
		return context.WithDeadlineCause(ctx, at, &deadlineError{at})
	}
	return ctx, func() {}
}

// soonest returns a channel that receives at the first deadline of the claims, or nil.
func (c *Collector) soonest(claims []claim) <-chan time.Time {
	var first time.Time
	for i := range claims {
		if at := c.deadline(claims[i].task); !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	if first.IsZero() {
		return nil
	}
	return time.After(time.Until(first))
}

// neverBegun makes the attempt that records a sample cut before its first attempt in this process.
func (w *worker) neverBegun(cl *claim, why error) *attempt {
	cl.started = time.Now()
	a := &attempt{Attempt: cl.upcoming(w.c.cfg.RunID), w: w, cl: cl, stage: StageWait}
	a.failed = a.failure(nil, why)
	return a
}
