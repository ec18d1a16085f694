package collector

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/rollout-rl/rollout/tokenize"
)

// If an answer is lost, its turns are read from the record of the server run. The record can
// contain less than the answer, because a server need not store the prompts that it sends with its
// answers. A sample must not fail or lack a call because the network lost an answer. So if the
// record lacks data that the answer had, the collector makes the rollout again, as after any lost
// connection.

// answerPrompts tracks whether received answers carry the prompts of their calls.
type answerPrompts struct {
	seen  atomic.Int32 // 0: no answer received yet, 1: without prompts, 2: with prompts
	known *bool        // Config.TurnsHavePrompts
}

// The method note records whether the received answers carry prompts. One answer with a prompt
// proves that answers carry prompts. A missing prompt proves little, because answers from another
// server can carry prompts.
func (a *answerPrompts) note(r *Reply, calls []tokenize.Call) {
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

// The method possible reports whether answers can carry prompts.
func (a *answerPrompts) possible() bool {
	seen := a.seen.Load()
	return seen == 2 || seen == 0 && (a.known == nil || *a.known)
}

// The method proven reports whether answers are known to carry prompts.
func (a *answerPrompts) proven() bool {
	seen := a.seen.Load()
	return seen == 2 || seen == 0 && a.known != nil && *a.known
}

// A lostAnswerError means that an answer was lost and the server's record lacks data that the
// answer had. The error's class is the class of the field cause. The cause is ErrGone if an earlier
// process made the send.
type lostAnswerError struct {
	cause   error  // why the answer was lost
	why     error  // what is missing; a *tokenize.AlignError if tokens cannot be used
	word    string // key in Stats.Remade
	partial bool   // the sample's other calls make rows
}

func (e *lostAnswerError) Error() string {
	return "the answer was lost, and the server's record of it is incomplete: " + e.why.Error() + "; cause: " + e.cause.Error()
}

func (e *lostAnswerError) Redacted() string {
	text := "the answer was lost, and the server's record of it is incomplete: " + e.word
	if cause := Redacted(e.cause); cause != "" {
		text += "; cause: " + cause
	}
	return text
}

func (e *lostAnswerError) Unwrap() []error { return []error{e.cause, e.why} }

func isLostAnswer(err error) bool {
	_, ok := errors.AsType[*lostAnswerError](err)
	return ok
}

// recordGap checks the calls that were read from the record or taken over. It returns an error if
// one of these calls is quarantined or has a worse grade than Config.Require allows. It ignores
// defects that a new attempt would also have.
func (a *attempt) recordGap(r *Reply, calls []tokenize.Call) *lostAnswerError {
	c := a.w.c
	might := c.answerPrompts.possible()
	var e *lostAnswerError
	var first tokenize.Call
	lost, bad := 0, 0
	r.eachCall(calls, func(s *Send, call *tokenize.Call) {
		quarantined := call.Grade == tokenize.Quarantined
		if quarantined {
			lost++
		}
		fails := quarantined || c.cfg.Require != nil && call.Grade > *c.cfg.Require
		if ours := s.FromRecord && might || call.TakenOver; !ours || !fails {
			return
		}
		if bad++; bad == 1 {
			e, first = newLostAnswer(s), *call
		}
		if s.Lost == nil || call.TakenOver {
			e.cause = ErrGone // an earlier process made the send, so another attempt is free
		}
	})
	if e == nil {
		return nil
	}
	reason := first.Reason
	var note error
	if first.Grade == tokenize.Quarantined {
		note = errors.New(noteOf(&first))
		e.partial = lost < len(calls)
	} else {
		reason = tokenize.ReasonGrade
		note = fmt.Errorf("grade is %s, want at least %s", first.Grade, *c.cfg.Require)
	}
	e.word = reason.String()
	e.why = &tokenize.AlignError{Turn: -1, Token: -1, Reason: reason, Err: fmt.Errorf("%d of %d calls cannot be used; reason for the first: %w", bad, len(calls), note)}
	return e
}

// promptGap is like recordGap, but for a reply whose prompts could not be determined because of
// err. It returns err unchanged if the record is not the cause.
func (a *attempt) promptGap(r *Reply, err error) error {
	if !a.w.c.answerPrompts.possible() || !r.fromRecord() {
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
			e = newLostAnswer(s)
		}
	}
	e.why, e.word = opaque{err}, tokenize.ReasonNoPrompt.String()
	if is {
		e.why, e.word = err, align.Reason.String()
	}
	return e
}

// opaque wraps an error and hides the error's class from Classify. For this reason, opaque has no
// Unwrap method.
type opaque struct{ err error }

func (h opaque) Error() string { return h.err.Error() }

// newLostAnswer returns the error for a send whose answer was lost. The caller sets the fields why
// and word.
func newLostAnswer(s *Send) *lostAnswerError {
	cause := s.Lost
	switch {
	case cause == nil:
		cause = ErrGone
	case !Classify(cause).Retryable():
		cause = fmt.Errorf("%w: %w", ErrConnection, cause)
	}
	return &lostAnswerError{cause: cause}
}

func (a *attempt) canRetry(e *lostAnswerError) bool {
	return a.cl.cut.cause() == nil && a.cl.retry.budget.CanRetry(a.lossKind(Classify(e)), a.w.c.cfg.breaker())
}
