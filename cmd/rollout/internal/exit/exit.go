// Package exit says what an error means to who called the program: a status, and a way
// forward. An error gets its status where it is first known, by [With], [Usagef] or
// [Refuse], and keeps it on its way up; what nobody gave one has that of [Code]'s table.
package exit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/rollout-rl/rollout/collector"
)

// The exit codes. Any other code is a failure too.
const (
	OK          = 0
	Internal    = 1
	Usage       = 2
	Failures    = 3
	Tolerance   = 4
	Unusable    = 5
	Storage     = 6
	Folder      = 7
	Locked      = 8
	Verify      = 9
	Interrupted = 130
)

// A statusError gives an error its exit code and, where there is one, a way
// forward for the user.
type statusError struct {
	code int
	err  error
	hint string
}

func (e *statusError) Error() string { return e.err.Error() }
func (e *statusError) Unwrap() error { return e.err }

// Refuse is err with a code and a hint, whatever its chain has of both.
func Refuse(code int, err error, hint string) error {
	return &statusError{code: code, err: err, hint: hint}
}

// With gives err a code. A code that is deeper in the chain is kept.
func With(code int, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*statusError](err); ok {
		return err
	}
	return &statusError{code: code, err: err}
}

// Hint adds a way forward. The hint nearest to the cause is kept.
func Hint(err error, hint string) error {
	if HintOf(err) != "" {
		return err
	}
	return &statusError{code: Code(err), err: err, hint: hint}
}

// Usagef is a complaint about what the user gave.
func Usagef(format string, args ...any) error {
	return &statusError{code: Usage, err: fmt.Errorf(format, args...)}
}

// Code is the one table from errors to codes.
func Code(err error) int {
	if err == nil {
		return OK
	}
	if e, ok := errors.AsType[*statusError](err); ok {
		return e.code
	}
	switch {
	case errors.Is(err, collector.ErrStorage), errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT),
		errors.Is(err, syscall.EROFS), errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return Storage
	case errors.Is(err, collector.ErrTolerance):
		return Tolerance
	case isUnusable(err):
		return Unusable
	case errors.Is(err, context.Canceled):
		return Interrupted
	default:
		return Internal
	}
}

// isUnusable reports whether err is about a server that does not do what is asked
// of it. Within a run most of these fail a sample only; what reaches the top ended
// the program.
func isUnusable(err error) bool {
	for _, sentinel := range []error{
		collector.ErrAuth, collector.ErrUnusable, collector.ErrUnavailable, collector.ErrConnection, collector.ErrBusy,
		collector.ErrServer, collector.ErrTimeout, collector.ErrIdle, collector.ErrRejected,
	} {
		if errors.Is(err, sentinel) {
			return true
		}
	}
	return false
}

// A SilentError ends the program with a code after everything was said already.
type SilentError int

func (e SilentError) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// HintOf is the first hint in the chain of err.
func HintOf(err error) string {
	for {
		e, ok := errors.AsType[*statusError](err)
		if !ok || e.hint != "" {
			return e.text()
		}
		err = e.err
	}
}

// text is the hint; no error has none.
func (e *statusError) text() string {
	if e == nil {
		return ""
	}
	return e.hint
}

// Complaints are several errors about one input, each worth a line of its own.
type Complaints []error //nolint:errname // what they are called everywhere

func (c Complaints) Error() string {
	var lines []string
	for _, err := range c {
		lines = append(lines, err.Error())
	}
	return strings.Join(lines, "\n")
}

func (c Complaints) Unwrap() []error { return c }

// Lines returns what to print for err: the complaints one by one, or the errors that
// were joined, or the error.
func Lines(err error) (out []error) {
	if many, ok := errors.AsType[Complaints](err); ok {
		return many
	}
	top := err
	for e, ok := errors.AsType[*statusError](top); ok && error(e) == top; e, ok = errors.AsType[*statusError](top) {
		top = e.err
	}
	joined, ok := top.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) == 0 || errors.Join(joined.Unwrap()...).Error() != err.Error() {
		return []error{err}
	}
	for _, err := range joined.Unwrap() {
		out = append(out, Lines(err)...)
	}
	return out
}
