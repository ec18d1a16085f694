package chat

import (
	"errors"
	"fmt"
)

// What an Error can wrap. Everything else that goes wrong in a template is an
// error of the template or of its input, as it is in Python.
var (
	// ErrRaised says that the template itself refused its input, by
	// raise_exception.
	ErrRaised = errors.New("template raised")
	// ErrLimit says that a limit of Options was reached.
	ErrLimit = errors.New("limit reached")
	// ErrUnsupported says that the template uses a part of Jinja that this package
	// leaves out.
	ErrUnsupported = errors.New("not supported")
)

// An Error says where in a template something went wrong.
type Error struct {
	// Template is the name that was given to Parse.
	Template string
	// Line counts from 1 in the template's source; 0 where it is not known.
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

// The errors of Python that a template can meet. Only their being errors
// matters to a caller; the words help a person.
func typeErrorf(format string, args ...any) error { return fmt.Errorf("type error: "+format, args...) }

func valueErrorf(format string, args ...any) error {
	return fmt.Errorf("value error: "+format, args...)
}

func limitErrorf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrLimit}, args...)...)
}

func undefinedError(v Value) error { return errors.New(v.undefinedText()) }
