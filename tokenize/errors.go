package tokenize

import (
	"errors"
	"strconv"
)

// What can be wrong with the bytes of a reply. A *DecodeError wraps one of these,
// or io.ErrUnexpectedEOF where the reply ends too early.
var (
	ErrSyntax       = errors.New("tokenize: not JSON")
	ErrUTF8         = errors.New("tokenize: invalid UTF-8")
	ErrSchema       = errors.New("tokenize: not what TurnTokenData allows here")
	ErrDuplicateKey = errors.New("tokenize: key appears twice")
	ErrRange        = errors.New("tokenize: token id outside int32")
	ErrTooLarge     = errors.New("tokenize: over a limit of DecoderConfig")
)

// What can be wrong with turns, calls and rows. An *AlignError wraps one of these.
var (
	ErrLength     = errors.New("tokenize: lengths differ")
	ErrIDMismatch = errors.New("tokenize: log-probability belongs to another token")
	ErrLogprob    = errors.New("tokenize: no usable log-probability")
	ErrVocab      = errors.New("tokenize: token id outside the vocabulary")
	ErrPrefix     = errors.New("tokenize: prompt does not continue the row")
	ErrNoTokens   = errors.New("tokenize: no sampled tokens")
	ErrNoPrompt   = errors.New("tokenize: prompt unknown")
	ErrCounts     = errors.New("tokenize: sums differ from the server's")
	ErrInvariant  = errors.New("tokenize: row breaks an invariant")
)

// A DecodeError says where the bytes of a reply are wrong.
type DecodeError struct {
	// Offset is the position of the offending byte, in bytes from the start of the
	// reply: 0 ≤ Offset ≤ its length.
	Offset int64
	// Path is a JSON pointer to the value: exact within turns; elsewhere it names
	// only the top-level key.
	Path string
	Err  error
}

func (e *DecodeError) Error() string {
	s := "byte " + strconv.FormatInt(e.Offset, 10)
	if e.Path != "" {
		s = e.Path + " (" + s + ")"
	}
	return s + ": " + e.Err.Error()
}

func (e *DecodeError) Unwrap() error { return e.Err }

// A ReadError says that the reader failed, not the bytes that it gave. A body cut
// short by the transport is a ReadError with io.ErrUnexpectedEOF; a reader that
// ends cleanly in mid-JSON is a *DecodeError with the same sentinel.
type ReadError struct {
	Offset int64 // bytes read before the failure
	Err    error
}

func (e *ReadError) Error() string {
	return "read reply after byte " + strconv.FormatInt(e.Offset, 10) + ": " + e.Err.Error()
}

func (e *ReadError) Unwrap() error { return e.Err }

// An AlignError says which turn or call breaks which rule.
type AlignError struct {
	// Turn is the index of the turn (CheckTurn, CallsFromTurns), of the call
	// (Aligner, CheckCounts) or of the span (Row.Check); -1 for all of them.
	Turn int
	// Token is the position within it, or -1.
	Token int
	// Reason is the word for failures/; ReasonNone from Row.Check.
	Reason Reason
	Err    error
}

func (e *AlignError) Error() string {
	s := ""
	if e.Turn >= 0 {
		s = "turn " + strconv.Itoa(e.Turn) + " "
	}
	if e.Token >= 0 {
		s += "token " + strconv.Itoa(e.Token) + " "
	}
	if e.Reason != ReasonNone {
		s += "(" + e.Reason.String() + ")"
	}
	if s == "" {
		return e.Err.Error()
	}
	if s[len(s)-1] == ' ' {
		s = s[:len(s)-1]
	}
	return s + ": " + e.Err.Error()
}

func (e *AlignError) Unwrap() error { return e.Err }
