package store

import "errors"

// The errors of a store. The errors that the methods return wrap them.
var (
	// ErrUnknown means that the store has no session with this key or id.
	ErrUnknown = errors.New("no such session")
	// ErrSealed means that the session is sealed or is being sealed, so that it accepts no new call.
	ErrSealed = errors.New("the session is sealed")
	// ErrConflict means that the session was sealed with a different reward, metadata or final text.
	ErrConflict = errors.New("the session was already ended with a different body")
	// ErrDamaged means that the file of the session is damaged.
	ErrDamaged = errors.New("the file of the session is damaged")
	// ErrTooLarge means that a call or the body of an end is too large for the file of a session.
	ErrTooLarge = errors.New("too large for the file of a session")
	// ErrLocked means that another process is writing to the folder.
	ErrLocked = errors.New("another process is writing to this folder of sessions")
	// ErrClosed means that the store was closed.
	ErrClosed = errors.New("the session store is closed")
)
