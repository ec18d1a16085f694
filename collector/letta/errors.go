package letta

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/tokenize"
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

// Error says what was tried and what came of it.
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

// RetryDelay is how long the server asked to wait, or 0.
func (e *APIError) RetryDelay() time.Duration { return e.RetryAfter }

// IsNotFound says that the server does not know what was asked for.
func IsNotFound(err error) bool {
	var e *APIError
	return errors.As(err, &e) && e.Status == http.StatusNotFound
}

// A NoTurnsError is an agent that will never answer with turns. It wraps
// ErrUnusable: no other sample would do better.
type NoTurnsError struct {
	AgentID, Model string
	Why            string
}

// Error says why, and what to do.
func (e *NoTurnsError) Error() string {
	of := ""
	if e.Model != "" {
		of = " of model " + e.Model
	}
	return "agent" + of + " will give no token data: " + e.Why
}

// Unwrap returns ErrUnusable.
func (e *NoTurnsError) Unwrap() error { return ErrUnusable }

// classed is a cause under a sentinel that says what it means. It reads as the
// cause.
type classed struct{ class, cause error }

func (c *classed) Error() string   { return c.cause.Error() }
func (c *classed) Unwrap() []error { return []error{c.class, c.cause} }

// Causes that the client itself sets on the context of a request.
var (
	errSendTimeout = errors.New("no complete answer within the time limit of a send")
	errCallTimeout = errors.New("no complete answer within the time limit of a call")
	errStalled     = errors.New("the answer stopped coming")
	errProxy       = errors.New("the address of the proxy, as the environment gives it, cannot be used")
)

// ErrAnswerLost is the cause with which a caller cancels the context of a send whose
// answer will not come any more, as its server run is over. The send then fails like one
// whose answer stopped coming.
var ErrAnswerLost = errors.New("the server run is over, and its answer does not come")

// classifyTransport says what an error that is not an answer means. ctx is the
// context of the request, with its cause.
func classifyTransport(ctx context.Context, err error) error {
	// A *url.Error repeats method and address; what it wraps is what happened.
	if u := (*url.Error)(nil); errors.As(err, &u) {
		err = u.Err
	}
	if cause := context.Cause(ctx); cause != nil {
		switch {
		case errors.Is(cause, errStalled), errors.Is(cause, ErrAnswerLost):
			return &classed{ErrIdle, cause}
		case errors.Is(cause, errSendTimeout), errors.Is(cause, errCallTimeout):
			return &classed{ErrTimeout, cause}
		}
		return &classed{ctx.Err(), cause} // the caller's own
	}
	if d := (*tokenize.DecodeError)(nil); errors.As(err, &d) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err // what came is wrong; the connection is not to blame
	}
	var (
		unknownAuthority x509.UnknownAuthorityError
		wrongHost        x509.HostnameError
		invalid          x509.CertificateInvalidError
		verification     *tls.CertificateVerificationError
		record           tls.RecordHeaderError
	)
	if errors.As(err, &unknownAuthority) || errors.As(err, &wrongHost) || errors.As(err, &invalid) ||
		errors.As(err, &verification) || errors.As(err, &record) {
		return &classed{ErrUnusable, err}
	}
	if dns := (*net.DNSError)(nil); errors.As(err, &dns) {
		return &classed{ErrConnection, fmt.Errorf("the host name %q cannot be resolved: %w", dns.Name, err)}
	}
	return &classed{ErrConnection, unquoted(err)}
}

// An unquotedError reads without what it quotes.
type unquotedError struct {
	text  string
	cause error
}

func (e *unquotedError) Error() string { return e.text }
func (e *unquotedError) Unwrap() error { return e.cause }

// unquoted leaves out what net/http quotes of an answer that is not HTTP: it may be the
// value of a header, and so a secret.
func unquoted(err error) error {
	text := err.Error()
	if !strings.HasPrefix(text, "net/http: ") {
		return err
	}
	before, _, quotes := strings.Cut(text, `"`)
	if !quotes {
		return err
	}
	return &unquotedError{strings.TrimRight(before, ": ") + " (its text is not shown)", err}
}

// classifyStatus says what a status means to the run.
//
// A 401, 402 or 403 whose type begins with llm_ is about the provider of the model,
// which will not serve any sample, and not about the server's own password
// (app.py:692-793). A 409 is a refusal where something is pending or running, and
// else a deadlock, a lock or a concurrent update in the database. A 500 says nothing
// by itself.
func classifyStatus(e *APIError) error {
	status := e.Status
	aboutModel := strings.HasPrefix(e.Code, "llm_")
	switch {
	case status == http.StatusTooManyRequests:
		return ErrBusy
	case status == http.StatusConflict:
		if e.RetryAfter == 0 && (e.Code != "" || strings.HasPrefix(e.Detail, "CONFLICT")) {
			return ErrRejected
		}
		return ErrBusy
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusPaymentRequired:
		switch {
		case aboutModel:
			return ErrUnusable
		case status == http.StatusPaymentRequired:
			return ErrRejected
		}
		return ErrAuth
	case status == http.StatusRequestTimeout, status == http.StatusGatewayTimeout:
		return ErrTimeout
	case status == http.StatusNotImplemented:
		return ErrRejected
	case status == http.StatusBadGateway, status == http.StatusServiceUnavailable:
		return ErrUnavailable
	case status >= 500:
		return ErrServer
	case status >= 300 && status < 400:
		return ErrUnusable
	}
	return ErrRejected
}

// retryAfter reads the header: seconds, or a date, which is by the server's clock.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	if text == "" {
		return 0
	}
	if s, err := strconv.ParseFloat(text, 64); err == nil && s >= 0 {
		return time.Duration(min(s, maxRetryAfter.Seconds()) * float64(time.Second))
	}
	if at, err := http.ParseTime(text); err == nil {
		if date, err := http.ParseTime(h.Get("Date")); err == nil {
			now = date // ours may be days off
		}
		return min(max(at.Sub(now), 0), maxRetryAfter)
	}
	return 0
}

// maxRetryAfter keeps a wrong clock or a typing error from stopping a run.
const maxRetryAfter = 10 * time.Minute

// maxDetailBytes is how much of a server's text an error carries: enough to
// understand it, small beside a row.
const maxDetailBytes = 300

// oneLine makes a short printable line of a text.
func oneLine(s string) string {
	s = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, "?"), func(r rune) bool {
		return r == ' ' || r < 0x20 || r == 0x7f
	}), " ")
	if len(s) <= maxDetailBytes {
		return s
	}
	s = s[:maxDetailBytes-len("…")]
	return strings.ToValidUTF8(s, "") + "…"
}

func quote(s string) string { return fmt.Sprintf("%q", s) }
