package collector

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/rollout-rl/rollout/tokenize"
)

// A Class is the one classification of failures. Its name is at once the metric
// label, the class column of failures/, the line of the summary and, through
// Retryable and Fatal, what the run does.
//
//	class             said by                                 then
//	timeout_total     ErrTimeout, a deadline                  new attempt
//	timeout_idle      ErrIdle                                 new attempt
//	rate_limited      ErrBusy                                 new attempt, after the server's delay
//	unavailable       ErrUnavailable                          new attempt
//	connection        ErrConnection, an early end of the body new attempt
//	server_error      ErrServer                               new attempt
//	bad_request       ErrRejected                             sample failed
//	malformed_call    ErrMalformedCall                        sample failed
//	context_overflow  ErrContextOverflow                      sample failed
//	agent_error       ErrAgent, a stop reason that is one     sample failed
//	tool_error        ErrTool                                 sample failed
//	decode            a reply that breaks the format          sample failed
//	no_turns          ErrNoTurns                              sample failed
//	no_prompt         no call's prompt can be had, or proven  sample failed
//	                  as well as Config.Require says
//	token_mismatch    tokens that contradict each other       sample failed
//	internal          everything else: a fault of ours        sample failed
//	cancelled         the run was stopped                     sample remains
//	auth              ErrAuth                                 run ends
//	unusable          ErrUnusable                             run ends
//	storage           ErrStorage                              run ends
type Class uint8

// The classes. The list is closed: a new kind of failure is added here, in
// classNames and in both switches below, and nowhere else.
const (
	ClassNone Class = iota // not a failure
	ClassTimeoutTotal
	ClassTimeoutIdle
	ClassRateLimited
	ClassUnavailable
	ClassConnection
	ClassServerError
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
	ClassCancelled
	ClassAuth
	ClassUnusable
	ClassStorage

	numClasses
)

var classNames = [numClasses]string{
	"none", "timeout_total", "timeout_idle", "rate_limited", "unavailable", "connection", "server_error",
	"bad_request", "malformed_call", "context_overflow", "agent_error", "tool_error", "decode", "no_turns",
	"no_prompt", "token_mismatch", "internal", "cancelled", "auth", "unusable", "storage",
}

func (c Class) String() string {
	if c < numClasses {
		return classNames[c]
	}
	return fmt.Sprintf("class(%d)", uint8(c))
}

// Classes lists every class of failure, in the order of the table.
func Classes() []Class {
	all := make([]Class, 0, numClasses-1)
	for c := ClassNone + 1; c < numClasses; c++ {
		all = append(all, c)
	}
	return all
}

// Retryable says that the failure lies in the infrastructure, so that another
// attempt on a new agent may succeed.
func (c Class) Retryable() bool {
	switch c {
	case ClassTimeoutTotal, ClassTimeoutIdle, ClassRateLimited, ClassUnavailable, ClassConnection, ClassServerError:
		return true
	case ClassNone, ClassBadRequest, ClassMalformedCall, ClassContextOverflow, ClassAgentError, ClassToolError,
		ClassDecode, ClassNoTurns, ClassNoPrompt, ClassTokenMismatch, ClassInternal, ClassCancelled,
		ClassAuth, ClassUnusable, ClassStorage, numClasses:
		return false
	}
	return false
}

// Fatal says that no other sample can do better, so that the run ends.
func (c Class) Fatal() bool {
	switch c {
	case ClassAuth, ClassUnusable, ClassStorage:
		return true
	case ClassNone, ClassTimeoutTotal, ClassTimeoutIdle, ClassRateLimited, ClassUnavailable, ClassConnection,
		ClassServerError, ClassBadRequest, ClassMalformedCall, ClassContextOverflow, ClassAgentError, ClassToolError,
		ClassDecode, ClassNoTurns, ClassNoPrompt, ClassTokenMismatch, ClassInternal, ClassCancelled, numClasses:
		return false
	}
	return false
}

// sentinels in the order in which they are looked for: what ends the run first,
// then what is most specific. A deadline comes after the sentinels because a
// backend that knows better than "deadline exceeded" wraps both.
var sentinels = [...]struct {
	err   error
	class Class
}{
	{ErrStorage, ClassStorage},
	{ErrAuth, ClassAuth},
	{ErrUnusable, ClassUnusable},
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
	{context.DeadlineExceeded, ClassTimeoutTotal},
	{context.Canceled, ClassCancelled},
	{io.ErrUnexpectedEOF, ClassConnection},
}

// Classify is the only place that decides what a failure is.
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
		return ClassOf(a.Reason)
	}
	if _, ok := errors.AsType[*tokenize.DecodeError](err); ok {
		return ClassDecode
	}
	if _, ok := errors.AsType[*tokenize.ReadError](err); ok {
		return ClassConnection
	}
	return ClassInternal
}

// ClassOf is the class of a quarantine.
func ClassOf(r tokenize.Reason) Class {
	switch r {
	case tokenize.ReasonNone:
		return ClassInternal // a row that breaks an invariant is a fault of ours
	case tokenize.ReasonNoPrompt, tokenize.ReasonCompacted, tokenize.ReasonGrade:
		return ClassNoPrompt
	case tokenize.ReasonNoTurns:
		return ClassNoTurns
	case tokenize.ReasonCountMismatch, tokenize.ReasonLengthMismatch, tokenize.ReasonIDMismatch,
		tokenize.ReasonNoLogprobs, tokenize.ReasonHole, tokenize.ReasonVocab, tokenize.ReasonDrift:
		return ClassTokenMismatch
	}
	return ClassInternal
}

// reasonOf is the word for a quarantine behind err, if there is one.
func reasonOf(err error) tokenize.Reason {
	if a, ok := errors.AsType[*tokenize.AlignError](err); ok {
		return a.Reason
	}
	if errors.Is(err, ErrNoTurns) {
		return tokenize.ReasonNoTurns
	}
	return tokenize.ReasonNone
}
