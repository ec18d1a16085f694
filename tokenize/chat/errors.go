package chat

import (
	"errors"
	"fmt"
)

// An Error can wrap one of these errors. Any other Error means that the template or its input is
// wrong. Python also fails in that case.
var (
	// ErrRaised means that the template refused its input with raise_exception.
	ErrRaised = errors.New("the template raised an exception")
	// ErrLimit means that a limit of Options was reached.
	ErrLimit = errors.New("limit reached")
	// ErrUnsupported means that the template uses a part of Jinja that is not supported.
	ErrUnsupported = errors.New("not supported")
)

// An Error is an error with its position in a template.
type Error struct {
	// Template is the name that was passed to Parse.
	Template string
	// Line is the line in the template's source, counted from 1, or 0 if unknown.
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

// typeErrorf and valueErrorf return the equivalents of Python's TypeError and ValueError. Callers
// do not distinguish them. Only the message differs.
func typeErrorf(format string, args ...any) error { return fmt.Errorf("type error: "+format, args...) }

func valueErrorf(format string, args ...any) error {
	return fmt.Errorf("value error: "+format, args...)
}

func limitErrorf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrLimit}, args...)...)
}

func undefinedError(v Value) error { return errors.New(v.undefinedText()) }
