package collector

import (
	"context"
	"strings"
	"time"
)

// atDeadline begins the text of a deadlineError, which failure rows keep.
const atDeadline = "collector: cut at the deadline of its task, "

// CutAtDeadline reports whether a failure of this class and with this text cut its sample at the
// deadline of its task, and not by the tail policy. What a server said stands behind that.
func CutAtDeadline(class, text string) bool {
	at, tail := strings.Index(text, atDeadline), strings.Index(text, ErrCensored.Error())
	return class == ClassCensored.String() && at >= 0 && (tail < 0 || at < tail)
}

// A deadlineError cuts a sample whose task has a deadline.
type deadlineError struct{ at time.Time }

func (e *deadlineError) Error() string {
	return atDeadline + e.at.UTC().Format(time.RFC3339)
}

// Unwrap returns ErrCensored.
func (e *deadlineError) Unwrap() error { return ErrCensored }

// deadline returns when the samples of the task are cut; zero: never. RetryFailed cuts none: its
// user wants the samples, however late.
func (c *Collector) deadline(t *Task) time.Time {
	if c.cfg.RetryFailed {
		return time.Time{}
	}
	return t.Deadline
}

// late returns a *deadlineError if the deadline of the sample is over, else nil.
func (c *Collector) late(cl *claim) error {
	if at := c.deadline(cl.task); !at.IsZero() && !time.Now().Before(at) {
		return &deadlineError{at}
	}
	return nil
}

// untilDeadline returns a ctx that ends with a *deadlineError at the deadline of the task. The
// caller must call the function, which frees the timer.
func (c *Collector) untilDeadline(ctx context.Context, t *Task) (context.Context, context.CancelFunc) {
	if at := c.deadline(t); !at.IsZero() {
		return context.WithDeadlineCause(ctx, at, &deadlineError{at})
	}
	return ctx, func() {}
}

// soonest returns a channel that gets a value at the first deadline of the claims; nil if
// none has one.
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

// neverBegun makes the attempt that records a sample which is cut before this process attempted
// it. Its number is that of the next attempt.
func (w *worker) neverBegun(cl *claim, why error) *attempt {
	cl.started = time.Now()
	a := &attempt{Attempt: cl.upcoming(w.c.cfg.RunID), w: w, cl: cl, stage: StageWait}
	a.failed = a.failure(nil, why)
	return a
}
