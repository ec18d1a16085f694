package collector

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/rollout-rl/rollout/tokenize"
)

// An answer that was not received is taken from the server's memory of its run, which
// may know less than the answer did: a server that sends the prompts along with its
// answers need not keep them. A sample is not to suffer for what the network lost, so
// what a memory lacks and an answer has makes no failure of the sample and no hole in it:
// the rollout is rolled again, as after any answer that was lost.

// along remembers whether received answers bring the prompts of their calls.
type along struct {
	seen  atomic.Int32 // 0: none was received yet, 1: they do not, 2: they do
	known *bool        // what the caller knows
}

// note looks at the calls of the sends that were received. One prompt that came along
// is proof for good; that none came may be one server's way of several.
func (a *along) note(r *Reply, calls []tokenize.Call) {
	r.eachCall(calls, func(s *Send, c *tokenize.Call) {
		switch {
		case s.FromRecord:
		case c.Source == tokenize.SourceTurns:
			a.seen.Store(2)
		default:
			a.seen.CompareAndSwap(0, 1)
		}
	})
}

// may says that an answer might bring the prompts: a new attempt finds out.
func (a *along) may() bool {
	seen := a.seen.Load()
	return seen == 2 || seen == 0 && (a.known == nil || *a.known)
}

// do says that answers are known to bring the prompts.
func (a *along) do() bool {
	seen := a.seen.Load()
	return seen == 2 || seen == 0 && a.known != nil && *a.known
}

// A lostAnswerError says that the server's memory of a rollout does not give what an answer
// would have. It is the failure that cost the answer: ErrGone where that was the end of
// an earlier process.
type lostAnswerError struct {
	cause error
	why   error // a *tokenize.AlignError where tokens cannot be used
	word  string
	part  bool // the other calls of the sample make rows
}

func (e *lostAnswerError) Error() string {
	return "the answer was lost, and what the server keeps of it gives less than an answer: " + e.why.Error() + "; lost to: " + e.cause.Error()
}

func (e *lostAnswerError) Unwrap() []error { return []error{e.cause, e.why} }

func isLostAnswer(err error) bool {
	_, ok := errors.AsType[*lostAnswerError](err)
	return ok
}

// lesser compares the calls that are taken from the server's memory, or that are worth
// less because the rollout was taken over, with what is required. It returns what they
// lack and those of a new attempt might have; nil where that is nothing. What a new
// attempt would lack as well is no matter of this.
func (a *attempt) lesser(r *Reply, calls []tokenize.Call) *lostAnswerError {
	c := a.w.c
	along := c.along.may()
	var e *lostAnswerError
	var first tokenize.Call
	lost, bad := 0, 0
	r.eachCall(calls, func(s *Send, call *tokenize.Call) {
		quarantined := call.Grade == tokenize.Quarantined
		if quarantined {
			lost++
		}
		fails := quarantined || c.cfg.Require != nil && call.Grade > *c.cfg.Require
		if ours := s.FromRecord && along || call.TakenOver; !ours || !fails {
			return
		}
		if bad++; bad == 1 {
			e, first = lostTo(s), *call
		}
		if s.Lost == nil || call.TakenOver {
			e.cause = ErrGone // an earlier process sent it, and its end costs nothing
		}
	})
	if e == nil {
		return nil
	}
	reason := first.Reason
	var note error
	if first.Grade == tokenize.Quarantined {
		note = errors.New(noteOf(&first))
		e.part = lost < len(calls)
	} else {
		reason = tokenize.ReasonGrade
		note = fmt.Errorf("it is %s, and %s is required", first.Grade, *c.cfg.Require)
	}
	e.word = reason.String()
	e.why = &tokenize.AlignError{Turn: -1, Token: -1, Reason: reason, Err: fmt.Errorf("%d of %d calls; the first one: %w", bad, len(calls), note)}
	return e
}

// lesserEvidence is lesser where the prompts could not even be looked for, because of
// err, which it returns where that is no matter of the server's memory. Of an answer
// that brings them along nothing is looked for.
func (a *attempt) lesserEvidence(r *Reply, err error) error {
	if !a.w.c.along.may() || !r.fromRecord() {
		return err
	}
	class := Classify(err)
	align, is := errors.AsType[*tokenize.AlignError](err)
	if class.Retryable() || class.Fatal() || class == ClassCancelled || class == ClassCensored || is && align.Reason != tokenize.ReasonHole {
		return err
	}
	var e *lostAnswerError
	for i := range r.Sends {
		if s := &r.Sends[i]; s.FromRecord && (e == nil || s.Lost == nil) {
			e = lostTo(s)
		}
	}
	e.why, e.word = hidden{err}, tokenize.ReasonNoPrompt.String()
	if is {
		e.why, e.word = err, align.Reason.String()
	}
	return e
}

// hidden is an error whose class is no matter.
type hidden struct{ err error }

func (h hidden) Error() string { return h.err.Error() }

// lostTo begins the error of a send whose answer was lost.
func lostTo(s *Send) *lostAnswerError {
	cause := s.Lost
	switch {
	case cause == nil:
		cause = ErrGone
	case !Classify(cause).Retryable():
		cause = fmt.Errorf("%w: %w", ErrConnection, cause)
	}
	return &lostAnswerError{cause: cause}
}

// affords says that the sample has an attempt left for a rollout that is made again. To
// take over what an earlier process left costs none.
func (a *attempt) affords(e *lostAnswerError) bool {
	return !a.w.c.cut() && (errors.Is(e.cause, ErrGone) && a.Kind == KindReattach || a.cl.budget.Charged < a.w.c.cfg.Retries)
}
