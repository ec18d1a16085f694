package letta

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The sentinels classify the failure of a call. An *APIError wraps one of the sentinels.
var (
	// ErrBusy: the server asks the client to retry later (429, lock conflicts).
	ErrBusy = errors.New("letta: server busy")
	// ErrUnavailable: the server or a service that it needs is down (502, 503).
	ErrUnavailable = errors.New("letta: server unavailable")
	// ErrConnection: the connection was refused or reset, or it ended before the whole answer
	// arrived.
	ErrConnection = errors.New("letta: connection failed")
	// ErrIdle: no byte of the answer arrived for ClientConfig.IdleBodyTimeout.
	ErrIdle = errors.New("letta: idle timeout")
	// ErrTimeout: the call exceeded a limit of ClientConfig, or a proxy timed out (408, 504).
	ErrTimeout = errors.New("letta: timeout")
	// ErrServer: the server answered 500 for an unknown reason, or its answer cannot be decoded.
	ErrServer = errors.New("letta: server error")
	// ErrRejected: the server refuses the request (4xx), or the request cannot be sent because an
	// id is empty.
	ErrRejected = errors.New("letta: request rejected")
	// ErrAuth: the server refuses the password.
	ErrAuth = errors.New("letta: not authorized")
	// ErrUnusable: no call of this kind will succeed. The reason is a wrong address, an untrusted
	// certificate, a model whose provider refuses requests, or an agent without turns.
	ErrUnusable = errors.New("letta: server or model unusable")
)

// An APIError reports a failed call. The server refused the call, did not answer it, or sent an
// answer that cannot be decoded.
type APIError struct {
	// Op is the operation in words: "send", "create agent".
	Op string
	// Method and Path are the method and path of the request. Path excludes the base URL and the
	// query.
	Method, Path string
	// Status is the HTTP status, or 0 if there was no answer.
	Status int
	// Code is the server's error code, such as PENDING_APPROVAL or llm_timeout. It can be empty.
	Code string
	// RetryAfter is the wait that the server requested, or 0.
	RetryAfter time.Duration
	// RequestID is the id sent with the request, or empty.
	RequestID string
	// Detail is the server's text on one line, at most 300 bytes, without secrets.
	Detail string
	// Err wraps one of the sentinels and the cause, if there is one. If the answer is malformed,
	// Err wraps a *tokenize.DecodeError. If the caller's context ended, Err wraps the context's
	// error and cause.
	Err error
}

// Error returns a message that names the operation and its failure.
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

// RetryDelay returns the wait that the server requested, or 0.
func (e *APIError) RetryDelay() time.Duration { return e.RetryAfter }

// IsNotFound reports whether err is a 404 answer.
func IsNotFound(err error) bool {
	var e *APIError
	return errors.As(err, &e) && e.Status == http.StatusNotFound
}

// A NoTurnsError reports why an agent will never answer with turns. It wraps ErrUnusable.
type NoTurnsError struct {
	AgentID, Model string
	Why            string
}

// Error returns a message with the reason.
func (e *NoTurnsError) Error() string {
	of := ""
	if e.Model != "" {
		of = " with model " + e.Model
	}
	return "agent" + of + " returns no token data: " + e.Why
}

// Unwrap returns ErrUnusable.
func (e *NoTurnsError) Unwrap() error { return ErrUnusable }

// A classed error wraps a sentinel and a cause. Its message is the message of the cause.
type classed struct{ class, cause error }

func (c *classed) Error() string   { return c.cause.Error() }
func (c *classed) Unwrap() []error { return []error{c.class, c.cause} }
