package collector

import "errors"

// Redacted returns the text of an error for places where nothing that a server, a model
// or a person wrote may appear, such as a log that is kept. It is empty where no text is
// known to be safe. Redacted does not look for secrets.
//
// An error that has such a text returns it from a method
//
//	Redacted() string // one line
//
// The first such error in the chain counts. Of the others, Redacted shows only the
// classes connection, timeout_total, timeout_idle, cancelled and storage: these come
// without an answer, so they quote none.
func Redacted(err error) string {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[interface {
		error
		Redacted() string
	}](err); ok {
		return shortened(e.Redacted())
	}
	switch Classify(err) {
	case ClassConnection, ClassTimeoutTotal, ClassTimeoutIdle, ClassCancelled, ClassStorage:
		return line(err)
	default:
		return ""
	}
}

// A safeError is an error whose whole text may be shown.
type safeError struct{ error }

func (e safeError) Redacted() string { return e.Error() }
func (e safeError) Unwrap() error    { return e.error }
