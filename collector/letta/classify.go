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
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

func (c *Client) transportError(ctx context.Context, r *request, err error) *APIError {
	return &APIError{Op: r.op, Method: r.method, Path: r.target.path, RequestID: r.id, Err: classifyTransport(ctx, err)}
}

// statusError returns the APIError for an answer with a failure status. The error text comes from
// at most the first 64 KiB of the body.
func (c *Client) statusError(r *request, resp *http.Response, body io.Reader) *APIError {
	text, _ := io.ReadAll(io.LimitReader(body, 64<<10)) // the part before a read error is still useful
	_, _ = io.CopyN(io.Discard, body, 256<<10)          // drain the body, so that the connection can be reused
	e := &APIError{
		Op: r.op, Method: r.method, Path: r.target.path, RequestID: r.id,
		Status: resp.StatusCode, RetryAfter: retryAfter(resp.Header, time.Now()),
	}
	secrets := c.secrets.withSecrets(r.secrets)
	e.Code, e.Detail = parseErrorBody(secrets.scrub(string(text)), secrets)
	if to := resp.Header.Get("Location"); to != "" && resp.StatusCode < 400 {
		e.Detail = oneLine(secrets.scrub("redirected to " + withoutParameters(to) + "; use that address without /v1 and the rest of the path"))
	}
	e.Err = classifyStatus(e)
	return e
}

var (
	errSendTimeout = errors.New("the send timed out")
	errCallTimeout = errors.New("the call timed out")
	errStalled     = errors.New("the answer stalled")
	errProxy       = errors.New("the proxy address in the environment is invalid")
)

// ErrAnswerLost is a cause for canceling the context of a send. A caller uses it if the server run
// has ended but no answer has arrived. The send then fails with ErrIdle.
var ErrAnswerLost = errors.New("the server run has ended, but its answer did not arrive")

// classifyTransport wraps the error from a request without an answer in the matching sentinel. If
// the request was canceled, the cause of ctx determines the sentinel.
func classifyTransport(ctx context.Context, err error) error {
	// A *url.Error repeats the method and the address. Keep only the wrapped error.
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
		return &classed{ctx.Err(), cause} // the caller's context ended
	}
	if d := (*tokenize.DecodeError)(nil); errors.As(err, &d) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err // the data is invalid, but the connection works
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
		return &classed{ErrConnection, fmt.Errorf("cannot resolve host name %q: %w", dns.Name, err)}
	}
	return &classed{ErrConnection, unquoted(err)}
}

type unquotedError struct {
	text  string
	cause error
}

func (e *unquotedError) Error() string { return e.text }
func (e *unquotedError) Unwrap() error { return e.cause }

// unquoted removes the data that net/http quotes from a malformed answer, because that data can
// contain a secret.
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

// classifyStatus returns the sentinel for the status of e.
//
// If the error type of a 401, 402 or 403 answer begins with llm_, the model's provider refused the
// request (app.py:692-793). The password for the server is then correct, but no sample can succeed.
// If a tool call is waiting for the client, or if a run is active, a 409 answer means that the
// server refused the request. Otherwise, the database had a deadlock, a lock or a concurrent update.
// A 500 answer can have any cause.
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
	case status >= 500, status == http.StatusBadRequest && strings.HasPrefix(e.Detail, "Import failed: (sqlalchemy."):
		// Concurrent imports of agents with the same tools sometimes deadlock in the database. The
		// server answers every failed import with 400.
		return ErrServer
	case status == http.StatusNotFound && e.Method != http.MethodGet && lostData.MatchString(e.Detail):
		return ErrServer
	case status >= 300 && status < 400:
		return ErrUnusable
	}
	return ErrRejected
}

// lostData matches the text of a 404 answer of a server that cannot find its own data. A step, run or
// job is missing if the database crashed before the row was durable (step_manager.py:275). The list
// of models is empty if the database accepts no more connections.
var lostData = regexp.MustCompile(`^(Step|Run|Job) with id \S+ does not exist|must be one of \[\]$`)

// retryAfter parses the Retry-After header, which contains a number of seconds, or a date according
// to the server's clock.
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
			now = date // the local clock can be days off
		}
		return min(max(at.Sub(now), 0), maxRetryAfter)
	}
	return 0
}

// maxRetryAfter limits the wait if the header is based on a wrong clock or a typo.
const maxRetryAfter = 10 * time.Minute
