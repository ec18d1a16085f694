// Package exit attaches exit codes and hints to errors. An error gets its exit code from [With],
// [Usagef] or [Refuse] as soon as the code is known. The error then keeps this code. [Code]
// determines the exit code of all other errors.
package exit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/rollout-rl/rollout/collector"
)

// Exit codes.
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

// A statusError is an error with an exit code and an optional hint.
type statusError struct {
	code int
	err  error
	hint string
}

func (e *statusError) Error() string { return e.err.Error() }
func (e *statusError) Unwrap() error { return e.err }

// Refuse returns err with the given exit code and hint. The new code and hint replace any code and
// hint that err already has.
func Refuse(code int, err error, hint string) error {
	return &statusError{code: code, err: err, hint: hint}
}

// With returns err with an exit code. If err already has a code, With keeps that code.
func With(code int, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*statusError](err); ok {
		return err
	}
	return &statusError{code: code, err: err}
}

// Hint adds a hint to err. If err already has a hint, Hint keeps it, because it was added closer to
// the cause.
func Hint(err error, hint string) error {
	if HintOf(err) != "" {
		return err
	}
	return &statusError{code: Code(err), err: err, hint: hint}
}

// Usagef returns a usage error, that is, an error in the user's input.
func Usagef(format string, args ...any) error {
	return &statusError{code: Usage, err: fmt.Errorf(format, args...)}
}

// Code returns the exit code for err. Code is only for an error that ends the program. Most server
// errors during a run only make a sample fail.
func Code(err error) int {
	if err == nil {
		return OK
	}
	if e, ok := errors.AsType[*statusError](err); ok {
		return e.code
	}
	is := func(these ...error) bool {
		return slices.ContainsFunc(these, func(one error) bool { return errors.Is(err, one) })
	}
	switch {
	case is(collector.ErrStorage, syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EACCES, syscall.EPERM):
		return Storage
	case is(collector.ErrTolerance):
		return Tolerance
	case is(collector.ErrAuth, collector.ErrUnusable, collector.ErrUnavailable, collector.ErrConnection, collector.ErrBusy,
		collector.ErrServer, collector.ErrTimeout, collector.ErrIdle, collector.ErrRejected):
		return Unusable
	case is(context.Canceled):
		return Interrupted
	default:
		return Internal
	}
}

// A SilentError ends the program with an exit code but without a message.
type SilentError int

func (e SilentError) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// HintOf returns the first hint in the chain of err.
func HintOf(err error) string {
	for e, ok := errors.AsType[*statusError](err); ok; e, ok = errors.AsType[*statusError](e.err) {
		if e.hint != "" {
			return e.hint
		}
	}
	return ""
}

// Complaints is a list of errors about the same input. Each error is printed on its own line.
type Complaints []error //nolint:errname // a list, not one error

func (c Complaints) Error() string {
	var lines []string
	for _, err := range c {
		lines = append(lines, err.Error())
	}
	return strings.Join(lines, "\n")
}

func (c Complaints) Unwrap() []error { return c }

// Flag adds an error about a flag, unless err is nil.
func (c *Complaints) Flag(name string, err error) {
	if err != nil {
		*c = append(*c, fmt.Errorf("--%s: %w", name, err))
	}
}

// Err returns the complaints as a usage error, or nil if there are none.
func (c Complaints) Err() error {
	if len(c) == 0 {
		return nil
	}
	return Refuse(Usage, c, "")
}

// Lines returns the errors to print for err: its Complaints, the errors that it joins, or err
// itself.
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
