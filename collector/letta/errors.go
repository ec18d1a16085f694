package letta

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The sentinels say what the failure of a call means to its caller. An *APIError wraps
// one of them.
var (
	// ErrBusy: the server works, and asks to be asked later (429, lock conflicts).
	ErrBusy = errors.New("letta: server busy")
	// ErrUnavailable: the server, or what it needs, does not serve (502, 503).
	ErrUnavailable = errors.New("letta: server unavailable")
	// ErrConnection: the connection was refused, reset, or ended before the whole answer
	// was there.
	ErrConnection = errors.New("letta: connection failed")
	// ErrIdle: no byte of the answer came for longer than ClientConfig.IdleBodyTimeout.
	ErrIdle = errors.New("letta: nothing received in time")
	// ErrTimeout: the call took longer than ClientConfig allows, or a server in between
	// gave up waiting (408, 504).
	ErrTimeout = errors.New("letta: took too long")
	// ErrServer: the server failed and its status says no more (500), or its answer
	// cannot be decoded.
	ErrServer = errors.New("letta: server error")
	// ErrRejected: the server understood the request and refuses it (4xx), or the request
	// cannot be made at all, as with an empty id.
	ErrRejected = errors.New("letta: request rejected")
	// ErrAuth: the server refuses the password.
	ErrAuth = errors.New("letta: not authorized")
	// ErrUnusable: no call of this kind will do better: a wrong address, a certificate
	// that is not trusted, a model whose provider refuses, an agent without turns.
	ErrUnusable = errors.New("letta: server or model not usable")
)

// An APIError is a call that failed: refused by the server, or not answered.
type APIError struct {
	// Op says in words what was tried: "send", "create agent".
	Op string
	// Method and Path are those of the request, Path without query and base.
	Method, Path string
	// Status is the HTTP status, or 0 where no answer came.
	Status int
	// Code is the server's own word for the kind of error, or empty:
	// PENDING_APPROVAL, llm_timeout, …
	Code string
	// RetryAfter is what the server asked for, or 0.
	RetryAfter time.Duration
	// RequestID is what the request was tagged with, or empty.
	RequestID string
	// Detail is the server's text on one line, at most 300 bytes, without secrets.
	Detail string
	// Err wraps one of the sentinels, and the cause where there is one. Where an answer
	// came that breaks the format, it is a *tokenize.DecodeError instead; where the
	// caller's context ended, it wraps the error and the cause of that context.
	Err error
}

// Error returns what was tried and what came of it.
func (e *APIError) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	b.WriteString(": ")
	if e.Status == 0 {
		b.WriteString(e.Err.Error())
		return b.String()
	}
	b.WriteString(strconv.Itoa(e.Status))
	if e.Code != "" {
		b.WriteString(" " + e.Code)
	}
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	} else if text := http.StatusText(e.Status); text != "" && e.Code == "" {
		b.WriteString(" " + text)
	}
	return b.String()
}

// Unwrap returns Err.
func (e *APIError) Unwrap() error { return e.Err }

// RetryDelay returns how long the server asked to wait, or 0.
func (e *APIError) RetryDelay() time.Duration { return e.RetryAfter }

// IsNotFound reports whether the server does not know what was asked for.
func IsNotFound(err error) bool {
	var e *APIError
	return errors.As(err, &e) && e.Status == http.StatusNotFound
}

// A NoTurnsError says why an agent will never answer with turns. It wraps ErrUnusable:
// every agent of this kind is the same.
type NoTurnsError struct {
	AgentID, Model string
	Why            string
}

// Error returns why, and what to do.
func (e *NoTurnsError) Error() string {
	of := ""
	if e.Model != "" {
		of = " of model " + e.Model
	}
	return "agent" + of + " will give no token data: " + e.Why
}

// Unwrap returns ErrUnusable.
func (e *NoTurnsError) Unwrap() error { return ErrUnusable }

// A classed error wraps a sentinel, which says what it means, and its cause. It reads as the
// cause.
type classed struct{ class, cause error }

func (c *classed) Error() string   { return c.cause.Error() }
func (c *classed) Unwrap() []error { return []error{c.class, c.cause} }
