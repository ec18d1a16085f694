package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/tame"
	"github.com/rollout-rl/rollout/collector"
)

// The exit codes. Any other code is a failure too.
const (
	exitOK          = 0
	exitInternal    = 1
	exitUsage       = 2
	exitFailures    = 3
	exitTolerance   = 4
	exitUnusable    = 5
	exitStorage     = 6
	exitFolder      = 7
	exitLocked      = 8
	exitVerify      = 9
	exitInterrupted = 130
)

// exitTable is the part of every help text that says what the codes mean.
const exitTable = `Exit status:
    0  everything that was planned is committed, or cut by --tail
    1  internal error
    2  wrong flags, configuration or tasks
    3  finished; some samples failed or could not be scored, no more than --fail-on-error allows
    4  more of them than --fail-on-error (default: none) or --max-failures allows, more
       cut than --tail says, or no row at all
    5  server or model not usable, or no sample would give a row
    6  storage failed: disk full, permission denied
    7  the folder is foreign, holds a run already, or its run cannot be resumed so
    8  the folder is locked by another process
    9  the run's files are damaged; verify lists what is wrong
  130  interrupted; collect --resume goes on`

// An exitError gives an error its exit code and, where there is one, a way
// forward for the user.
type exitError struct {
	code int
	err  error
	hint string
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// withExit gives err a code. A code that is deeper in the chain is kept.
func withExit(code int, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*exitError](err); ok {
		return err
	}
	return &exitError{code: code, err: err}
}

// withHint adds a way forward. The hint nearest to the cause is kept.
func withHint(err error, hint string) error {
	if hintOf(err) != "" {
		return err
	}
	return &exitError{code: exitCode(err), err: err, hint: hint}
}

// usageError is a complaint about what the user gave.
func usageError(format string, args ...any) error {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// exitCode is the one table from errors to codes.
func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	switch {
	case errors.Is(err, collector.ErrStorage), errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT),
		errors.Is(err, syscall.EROFS), errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return exitStorage
	case errors.Is(err, collector.ErrTolerance):
		return exitTolerance
	case isUnusable(err):
		return exitUnusable
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	default:
		return exitInternal
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

// A silentError ends the program with a code after everything was said already.
type silentError int

func (e silentError) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// report prints err, once, and returns the exit code. Complaints are
// printed one per line.
func (p *program) report(err error) int {
	if s, ok := errors.AsType[silentError](err); ok {
		return int(s)
	}
	if err == nil {
		return exitOK
	}
	for _, line := range lines(err) {
		p.say("%s", line)
	}
	if hint := hintOf(err); hint != "" {
		tame.Fprintf(p.stderr, "hint: %s\n", hint)
	}
	return exitCode(err)
}

// hintOf is the first hint in the chain of err.
func hintOf(err error) string {
	for {
		e, ok := errors.AsType[*exitError](err)
		if !ok || e.hint != "" {
			return e.text()
		}
		err = e.err
	}
}

// text is the hint; no error has none.
func (e *exitError) text() string {
	if e == nil {
		return ""
	}
	return e.hint
}

// complaints are several errors about one input, each worth a line of its own.
type complaints []error

func (c complaints) Error() string {
	var lines []string
	for _, err := range c {
		lines = append(lines, err.Error())
	}
	return strings.Join(lines, "\n")
}

func (c complaints) Unwrap() []error { return c }

// lines returns what to print for err: the complaints one by one, or the errors that
// were joined, or the error.
func lines(err error) (out []error) {
	if many, ok := errors.AsType[complaints](err); ok {
		return many
	}
	top := err
	for e, ok := errors.AsType[*exitError](top); ok && error(e) == top; e, ok = errors.AsType[*exitError](top) {
		top = e.err
	}
	joined, ok := top.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) == 0 || errors.Join(joined.Unwrap()...).Error() != err.Error() {
		return []error{err}
	}
	for _, err := range joined.Unwrap() {
		out = append(out, lines(err)...)
	}
	return out
}
