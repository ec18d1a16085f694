package collector

import (
	"context"
	"strings"
	"time"
)

// atDeadline is the prefix of the text of a deadlineError. Failure rows store that text.
const atDeadline = "collector: cut at the task's deadline, "

// CutAtDeadline reports whether a failure with this class and text means that the sample was cut at
// the deadline of its task, and not by the tail policy. Text from the server can only come after
// the prefix.
func CutAtDeadline(class, text string) bool {
	at, tail := strings.Index(text, atDeadline), strings.Index(text, ErrCensored.Error())
	return class == ClassCensored.String() && at >= 0 && (tail < 0 || at < tail)
}

type deadlineError struct{ at time.Time }

func (e *deadlineError) Error() string {
	return atDeadline + e.at.UTC().Format(time.RFC3339)
}

func (e *deadlineError) Unwrap() error { return ErrCensored }

// A cutoff defines when a sample is cut. The feed creates it, and it never changes. The zero cutoff
// never cuts.
type cutoff struct {
	deadline time.Time // deadline of the task; zero if the task has none
	tail     *tail     // nil: the tail policy does not cut
}

// newCutoff returns the cutoff for the task's samples. With RetryFailed, deadlines do not apply,
// because the user wants the failed samples even if they are late.
func (c *Collector) newCutoff(t *Task) cutoff {
	var cut cutoff
	if !c.cfg.RetryFailed {
		cut.deadline = t.Deadline
	}
	if c.cfg.Tail.Kind != TailWait {
		cut.tail = &c.tail
	}
	return cut
}

// cause returns the reason to cut the sample now: ErrCensored or a *deadlineError. It returns nil
// if there is no reason.
func (c cutoff) cause() error {
	switch {
	case c.tail != nil && c.tail.cut.isUp():
		return ErrCensored
	case !c.deadline.IsZero() && !time.Now().Before(c.deadline):
		return &deadlineError{c.deadline}
	}
	return nil
}

// context derives a context that is done when the sample is cut. The caller must call the returned
// function.
func (c cutoff) context(ctx context.Context) (context.Context, context.CancelFunc) {
	timed := context.CancelFunc(func() {})
	if !c.deadline.IsZero() {
		ctx, timed = context.WithDeadlineCause(ctx, c.deadline, &deadlineError{c.deadline})
	}
	if c.tail == nil {
		return ctx, timed
	}
	ctx, stop := c.tail.cut.until(ctx, ErrCensored)
	return ctx, func() { stop(); timed() }
}

// firstDeadline returns a channel that fires at the earliest deadline of the claims. The channel is
// nil if no claim has a deadline.
func firstDeadline(claims []claim) <-chan time.Time {
	var first time.Time
	for i := range claims {
		if at := claims[i].cut.deadline; !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	if first.IsZero() {
		return nil
	}
	return time.After(time.Until(first))
}
