package collector

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/rollout-rl/rollout/tokenize"
)

// A Class is the only classification of a failure. Its name is the metric label, the class column
// of failures/ and the line of the summary.
//
//	class             cause                                       kind       then
//	timeout_total     ErrTimeout, a deadline                      fault      retry
//	timeout_idle      ErrIdle                                     fault      retry
//	rate_limited      ErrBusy                                     busy       retry, after the server's delay
//	unavailable       ErrUnavailable                              fault      retry
//	connection        ErrConnection, an early end of the body     fault      retry
//	server_error      ErrServer                                   fault      retry
//	aborted           ErrAborted, a finish reason abort           fault      retry
//	lost              ErrGone                                     gone       retry, at no cost
//	bad_request       ErrRejected                                 final      sample failed
//	malformed_call    ErrMalformedCall                            policy     data retry, or sample failed
//	context_overflow  ErrContextOverflow                          policy     data retry, or sample failed
//	agent_error       ErrAgent, a stop reason that is an error    policy     data retry, or sample failed
//	tool_error        ErrTool                                     policy     data retry, or sample failed
//	decode            a reply that breaks the format              final      sample failed
//	no_turns          ErrNoTurns, a record without token data     final      sample failed
//	no_prompt         no known or sufficiently proven prompt      policy     data retry, or sample failed
//	token_mismatch    tokens that contradict each other           policy     data retry, or sample failed
//	internal          everything else: a bug in this program      final      sample failed
//	censored          ErrCensored                                 cut        sample cut by the tail policy or at a deadline
//	cancelled         the run was stopped                         cancelled  sample remains
//	auth              ErrAuth                                     fatal      run ends
//	unusable          ErrUnusable                                 fatal      run ends
//	storage           ErrStorage                                  fatal      run ends
//
// attempt.end reports the kind to package breaker. Four kinds depend on the course of the attempt:
// lost_answer (the answer of a finished rollout was lost), slow (it used up Config.AttemptTimeout),
// moved (another server takes the sample), and final for a takeover that the server rejects.
//
// A retry follows a failure of the infrastructure. A good sample after a retry is drawn like any
// other, except for its length: see Stats.Remade. If an answer was lost and the server's record
// lacks part of it, the class is the class of the loss, and the reason names the gap.
//
// A data retry follows a failure of the policy in this one rollout. It shifts the distribution of
// the data: see "Two budgets" in the package comment. A failure that another rollout cannot change
// (a reply that breaks the format, a rejected request) gets no data retry.
type Class uint8

// The classes. The list is closed: a new class is added here and in classes, and nowhere else.
const (
	ClassNone Class = iota // not a failure
	ClassTimeoutTotal
	ClassTimeoutIdle
	ClassRateLimited
	ClassUnavailable
	ClassConnection
	ClassServerError
	ClassAborted
	ClassLost
	ClassBadRequest
	ClassMalformedCall
	ClassContextOverflow
	ClassAgentError
	ClassToolError
	ClassDecode
	ClassNoTurns
	ClassNoPrompt
	ClassTokenMismatch
	ClassInternal
	ClassCensored
	ClassCancelled
	ClassAuth
	ClassUnusable
	ClassStorage

	numClasses
)

type remedy uint8

const (
	remedyNone      remedy = iota // the sample fails, or remains
	remedyRetry                   // another attempt, out of Config.Retries
	remedyDataRetry               // another attempt, out of Config.DataRetries
	remedyEnd                     // the run ends
)

var classes = [numClasses]struct {
	name   string
	remedy remedy
}{
	ClassNone:            {"none", remedyNone},
	ClassTimeoutTotal:    {"timeout_total", remedyRetry},
	ClassTimeoutIdle:     {"timeout_idle", remedyRetry},
	ClassRateLimited:     {"rate_limited", remedyRetry},
	ClassUnavailable:     {"unavailable", remedyRetry},
	ClassConnection:      {"connection", remedyRetry},
	ClassServerError:     {"server_error", remedyRetry},
	ClassAborted:         {"aborted", remedyRetry},
	ClassLost:            {"lost", remedyRetry},
	ClassBadRequest:      {"bad_request", remedyNone},
	ClassMalformedCall:   {"malformed_call", remedyDataRetry},
	ClassContextOverflow: {"context_overflow", remedyDataRetry},
	ClassAgentError:      {"agent_error", remedyDataRetry},
	ClassToolError:       {"tool_error", remedyDataRetry},
	ClassDecode:          {"decode", remedyNone},
	ClassNoTurns:         {"no_turns", remedyNone},
	ClassNoPrompt:        {"no_prompt", remedyDataRetry},
	ClassTokenMismatch:   {"token_mismatch", remedyDataRetry},
	ClassInternal:        {"internal", remedyNone},
	ClassCensored:        {"censored", remedyNone},
	ClassCancelled:       {"cancelled", remedyNone},
	ClassAuth:            {"auth", remedyEnd},
	ClassUnusable:        {"unusable", remedyEnd},
	ClassStorage:         {"storage", remedyEnd},
}

func (c Class) String() string {
	if c < numClasses {
		return classes[c].name
	}
	return fmt.Sprintf("class(%d)", uint8(c))
}

// ParseClass returns the class with this name.
func ParseClass(name string) (Class, bool) {
	for c := range classes {
		if classes[c].name == name {
			return Class(c), true
		}
	}
	return ClassNone, false
}

// Classes lists every class of failure, in the order of the table.
func Classes() []Class {
	all := make([]Class, 0, numClasses-1)
	for c := ClassNone + 1; c < numClasses; c++ {
		all = append(all, c)
	}
	return all
}

func (c Class) is(r remedy) bool { return c < numClasses && classes[c].remedy == r }

// Retryable reports whether the infrastructure failed, so that a new agent can succeed.
func (c Class) Retryable() bool { return c.is(remedyRetry) }

// DataRetryable reports whether the policy failed, so that another rollout can succeed.
func (c Class) DataRetryable() bool { return c.is(remedyDataRetry) }

// Fatal reports whether every other sample would fail too, so that the run ends.
func (c Class) Fatal() bool { return c.is(remedyEnd) }

// sentinels are in the order of Classify: first the errors that end the run, then the most specific
// ones. A deadline comes last: a backend with a better reason than "deadline exceeded" wraps both.
var sentinels = [...]struct {
	err   error
	class Class
}{
	{ErrStorage, ClassStorage},
	{ErrAuth, ClassAuth},
	{ErrUnusable, ClassUnusable},
	{ErrCensored, ClassCensored},
	{ErrGone, ClassLost},
	{ErrNoTurns, ClassNoTurns},
	{ErrMalformedCall, ClassMalformedCall},
	{ErrContextOverflow, ClassContextOverflow},
	{ErrTool, ClassToolError},
	{ErrAgent, ClassAgentError},
	{ErrRejected, ClassBadRequest},
	{ErrIdle, ClassTimeoutIdle},
	{ErrTimeout, ClassTimeoutTotal},
	{ErrBusy, ClassRateLimited},
	{ErrUnavailable, ClassUnavailable},
	{ErrConnection, ClassConnection},
	{ErrServer, ClassServerError},
	{ErrAborted, ClassAborted},
	{context.DeadlineExceeded, ClassTimeoutTotal},
	{context.Canceled, ClassCancelled},
	{io.ErrUnexpectedEOF, ClassConnection},
}

// Classify returns the class of err. Before that, a backend chooses the sentinel that an error
// wraps (for Letta: letta/classify.go, agent/explain.go, agent/translate.go). Afterwards,
// attempt.end translates the class for the breaker.
func Classify(err error) Class {
	if err == nil {
		return ClassNone
	}
	for _, s := range sentinels {
		if errors.Is(err, s.err) {
			return s.class
		}
	}
	if a, ok := errors.AsType[*tokenize.AlignError](err); ok {
		return reasonClass(a.Reason)
	}
	if _, ok := errors.AsType[*tokenize.DecodeError](err); ok {
		return ClassDecode
	}
	if _, ok := errors.AsType[*tokenize.ReadError](err); ok {
		return ClassConnection
	}
	return ClassInternal
}

// reasonClass returns the class of a quarantine reason.
func reasonClass(r tokenize.Reason) Class {
	switch r {
	case tokenize.ReasonNone:
		return ClassInternal // a row that breaks an invariant is a bug in this program
	case tokenize.ReasonNoPrompt, tokenize.ReasonCompacted, tokenize.ReasonGrade, tokenize.ReasonToolOrder, tokenize.ReasonTraceLost, tokenize.ReasonClock, tokenize.ReasonContinuity:
		return ClassNoPrompt
	case tokenize.ReasonNoTurns, tokenize.ReasonNoTrace, tokenize.ReasonNotNative, tokenize.ReasonDeleted, tokenize.ReasonUnfinished:
		return ClassNoTurns
	case tokenize.ReasonCountMismatch, tokenize.ReasonLengthMismatch, tokenize.ReasonIDMismatch,
		tokenize.ReasonNoLogprobs, tokenize.ReasonHole, tokenize.ReasonVocab, tokenize.ReasonDrift:
		return ClassTokenMismatch
	}
	return ClassInternal
}
