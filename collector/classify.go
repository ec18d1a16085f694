package collector

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/rollout-rl/rollout/tokenize"
)

// A Class classifies a failure. Metrics, the class column of failures/ and the summary all use the
// name of the class.
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
//	no_calls          ErrNoCalls                                  own        retry
//	empty_answer      ErrEmptyAnswer                              policy     data retry, or sample failed
//	foreign           ErrForeign                                  final      sample failed
//	decode            a reply that breaks the format              final      sample failed
//	no_turns          ErrNoTurns, a record without token data     final      sample failed
//	no_prompt         no known or sufficiently proven prompt      policy     data retry, or sample failed
//	token_mismatch    tokens that contradict each other           policy     data retry, or sample failed
//	untrained         calls that must not be trained              final      sample failed
//	internal          everything else: a bug in this program      final      sample failed
//	censored          ErrCensored                                 cut        sample cut by the tail policy or at a deadline
//	cancelled         the run was stopped, ErrMoved               cancelled  sample remains, or has moved
//	auth              ErrAuth                                     fatal      run ends
//	unusable          ErrUnusable                                 fatal      run ends
//	storage           ErrStorage                                  fatal      run ends
//
// attempt.end reports the kind to package breaker. Some kinds depend on how the attempt ended and
// not on the class. lost_answer means that the answer of a finished rollout was lost. own means that
// the agent itself failed and not its server: it made no call, or it used up Config.AttemptTimeout or
// a time limit of its own (ErrOutOfTime). moved means that another server takes the sample.
// A rejected takeover has the kind final.
//
// A retry follows a failure of the infrastructure. A sample that succeeds after a retry comes from
// the same distribution as any other sample, except for its length: see Stats.Remade. If an answer
// was lost and the server's record lacks part of it, the class describes the loss of the answer,
// and the reason describes the missing part.
//
// A data retry follows a failure of the policy in one rollout. Data retries shift the distribution
// of the data: see "Two budgets" in the package comment. If another rollout would fail in the same
// way (a reply that breaks the format, a rejected request), there is no data retry.
//
// The class untrained is usually the class of a call in a sample that has rows: the call was recorded
// completely, but it belongs to an auxiliary chain or the harness did not read its answer. A sample
// fails with this class only if it has no other calls.
type Class uint8

// The classes. To add a class, see the package comment.
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
	ClassNoCalls
	ClassEmptyAnswer
	ClassForeign
	ClassDecode
	ClassNoTurns
	ClassNoPrompt
	ClassTokenMismatch
	ClassUntrained
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
	remedyNone      remedy = iota // no other attempt: the sample fails or stays unfinished
	remedyRetry                   // another attempt, charged to Config.Retries
	remedyDataRetry               // another attempt, charged to Config.DataRetries
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
	ClassNoCalls:         {"no_calls", remedyRetry},
	ClassEmptyAnswer:     {"empty_answer", remedyDataRetry},
	ClassForeign:         {"foreign", remedyNone},
	ClassDecode:          {"decode", remedyNone},
	ClassNoTurns:         {"no_turns", remedyNone},
	ClassNoPrompt:        {"no_prompt", remedyDataRetry},
	ClassTokenMismatch:   {"token_mismatch", remedyDataRetry},
	ClassUntrained:       {"untrained", remedyNone},
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

// Retryable reports whether the infrastructure failed, in which case a new agent can succeed.
func (c Class) Retryable() bool { return c.is(remedyRetry) }

// DataRetryable reports whether the policy failed, in which case another rollout can succeed.
func (c Class) DataRetryable() bool { return c.is(remedyDataRetry) }

// Fatal reports whether the failure ends the run, because every other sample would fail too.
func (c Class) Fatal() bool { return c.is(remedyEnd) }

// sentinels are in the order in which Classify tests them. The errors that end the run come first,
// then the most specific errors. A deadline error comes late, because a backend that knows a better
// reason than "deadline exceeded" returns an error that wraps both.
var sentinels = [...]struct {
	err   error
	class Class
}{
	{ErrMoved, ClassCancelled},
	{ErrStorage, ClassStorage},
	{ErrAuth, ClassAuth},
	{ErrUnusable, ClassUnusable},
	{ErrCensored, ClassCensored},
	{ErrGone, ClassLost},
	{ErrNoTurns, ClassNoTurns},
	{ErrNoCalls, ClassNoCalls},
	{ErrEmptyAnswer, ClassEmptyAnswer},
	{ErrForeign, ClassForeign},
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

// Classify returns the class of err. The backend chooses the sentinel that err wraps (for Letta:
// letta/classify.go, agent/explain.go, agent/translate.go). Later, attempt.end translates the class
// for the breaker.
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
		tokenize.ReasonNoLogprobs, tokenize.ReasonHole, tokenize.ReasonVocab, tokenize.ReasonDrift,
		tokenize.ReasonNoIDs, tokenize.ReasonAmbiguousRetry:
		return ClassTokenMismatch
	case tokenize.ReasonAuxiliary, tokenize.ReasonSuperseded, tokenize.ReasonCutAnswer:
		return ClassUntrained
	}
	return ClassInternal
}
