package tokenize

import (
	"errors"
	"strconv"
)

// Errors in the bytes of a reply. A *DecodeError wraps one of these errors or io.ErrUnexpectedEOF.
var (
	ErrSyntax       = errors.New("tokenize: not JSON")
	ErrUTF8         = errors.New("tokenize: invalid UTF-8")
	ErrSchema       = errors.New("tokenize: unexpected value")
	ErrDuplicateKey = errors.New("tokenize: duplicate key")
	ErrRange        = errors.New("tokenize: token id does not fit in int32")
	ErrTooLarge     = errors.New("tokenize: limit exceeded")
)

// Errors in turns, calls and rows. An *AlignError wraps one of these errors.
var (
	ErrLength     = errors.New("tokenize: lengths differ")
	ErrIDMismatch = errors.New("tokenize: log-probability belongs to another token")
	ErrLogprob    = errors.New("tokenize: no usable log-probability")
	ErrVocab      = errors.New("tokenize: token id outside the vocabulary")
	ErrPrefix     = errors.New("tokenize: prompt does not continue the row")
	ErrNoTokens   = errors.New("tokenize: no sampled tokens")
	ErrNoPrompt   = errors.New("tokenize: unknown prompt")
	ErrCounts     = errors.New("tokenize: counts differ from the server's")
	ErrInvariant  = errors.New("tokenize: invariant violated")
)

// A DecodeError reports malformed bytes in a reply.
type DecodeError struct {
	// Offset is the position of the offending byte: 0 ≤ Offset ≤ length of the reply.
	Offset int64
	// Path is a JSON pointer to the value. For a value outside of `turns`, Path has only the
	// top-level key.
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

// A ReadError reports that the reader failed. If the transport cuts off a body, the ReadError wraps
// io.ErrUnexpectedEOF. If the JSON ends early without a read error, the error is a *DecodeError
// instead.
type ReadError struct {
	Offset int64 // bytes read before the failure
	Err    error
}

func (e *ReadError) Error() string {
	return "cannot read the reply after byte " + strconv.FormatInt(e.Offset, 10) + ": " + e.Err.Error()
}

func (e *ReadError) Unwrap() error { return e.Err }

// An AlignError reports that a turn, a call or a row breaks a rule.
type AlignError struct {
	// Turn is the index of the turn (CallsFromTurns), the call (Aligner, CheckCounts) or the span
	// (Row.Check). It is -1 if the error does not concern a single turn, call or span, or if
	// CheckTurn returned the error.
	Turn int
	// Token is the position of the token, or -1.
	Token int
	// Reason is the reason to write to failures/. It is ReasonNone in errors from Row.Check.
	Reason Reason
	Err    error
}

func (e *AlignError) Error() string {
	s := ""
	if e.Turn >= 0 {
		s = "turn " + strconv.Itoa(e.Turn)
	}
	if e.Token >= 0 {
		if s != "" {
			s += ", "
		}
		s += "token " + strconv.Itoa(e.Token)
	}
	switch {
	case e.Reason == ReasonNone:
	case s == "":
		s = e.Reason.String()
	default:
		s += " (" + e.Reason.String() + ")"
	}
	if s == "" {
		return e.Err.Error()
	}
	return s + ": " + e.Err.Error()
}

func (e *AlignError) Unwrap() error { return e.Err }
