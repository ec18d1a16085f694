package chat

import (
	"errors"
	"fmt"
)

// An Error can wrap one of these. All other errors are errors of the template or its input, as in
// Python.
var (
	// ErrRaised means that the template refused its input with raise_exception.
	ErrRaised = errors.New("template raised")
	// ErrLimit means that a limit of Options was reached.
	ErrLimit = errors.New("limit reached")
	// ErrUnsupported means that the template uses a part of Jinja that is not supported.
	ErrUnsupported = errors.New("not supported")
)

// An Error is an error with its place in a template.
type Error struct {
	// Template is the name that was passed to Parse.
	Template string
	// Line counts from 1 in the template's source; 0 if unknown.
	Line int
	Err  error
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("chat: %s: %v", e.Template, e.Err)
	}
	return fmt.Sprintf("chat: %s:%d: %v", e.Template, e.Line, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// typeErrorf and valueErrorf return errors for Python's TypeError and ValueError. Callers do not
// distinguish them; the text is for people.
func typeErrorf(format string, args ...any) error { return fmt.Errorf("type error: "+format, args...) }

func valueErrorf(format string, args ...any) error {
	return fmt.Errorf("value error: "+format, args...)
}

func limitErrorf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrLimit}, args...)...)
}

func undefinedError(v Value) error { return errors.New(v.undefinedText()) }
