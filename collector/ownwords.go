package collector

import "errors"

// OwnWords is what may be said of an error where no text of a server, a model or a
// person may appear, such as a log that is kept: empty where nothing is known to be
// safe. Secrets are not looked for.
//
// An error that knows such a text says so by a method
//
//	OwnWords() string // one line
//
// and the first in the chain counts. Of the others only those of the classes
// connection, timeout_total, timeout_idle, cancelled and storage are shown: there is
// no answer that they could quote.
func OwnWords(err error) string {
	if err == nil {
		return ""
	}
	if own, ok := errors.AsType[interface {
		error
		OwnWords() string
	}](err); ok {
		return shortened(own.OwnWords())
	}
	switch Classify(err) {
	case ClassConnection, ClassTimeoutTotal, ClassTimeoutIdle, ClassCancelled, ClassStorage:
		return line(err)
	default:
		return ""
	}
}

// An ownError is an error whose text is safe.
type ownError struct{ error }

func (e ownError) OwnWords() string { return e.Error() }
func (e ownError) Unwrap() error    { return e.error }
