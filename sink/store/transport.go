package store

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

var (
	errSilent = errors.New("no byte was transferred for the timeout")
	errClosed = errors.New("the server closed the connection")
)

// A transport counts requests. It ends a request if no byte is transferred for the timeout, because a
// limit for a whole request would have to know the speed of the network.
type transport struct {
	base    *http.Transport
	timeout time.Duration
	n       *Requests
	dates   dates
}

// A dates has the clock of the server, as its last answer showed it.
type dates struct {
	last atomic.Pointer[struct{ date, at time.Time }] // at is the time of this machine, with a monotonic reading
}

func newTransport(opts Options) *transport {
	return &transport{timeout: opts.Timeout, n: opts.Requests, base: &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     time.Minute,
		TLSHandshakeTimeout: 10 * time.Second,
		DisableCompression:  true, // a range is a range of the stored bytes
	}}
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	t.counter(req).Add(1)
	ctx, cancel := context.WithCancelCause(req.Context())
	w := &watch{timeout: t.timeout, ctx: ctx, cancel: cancel}
	w.timer = time.AfterFunc(t.timeout, func() { cancel(errSilent) })
	req = req.WithContext(ctx)
	if req.Body != nil && req.Body != http.NoBody {
		req.Body = &sent{req.Body, w}
	}
	resp, err := t.base.RoundTrip(req)
	if err != nil {
		err = w.explain(err)
		w.stop()
		return nil, err
	}
	w.timer.Reset(t.timeout)
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		t.dates.last.Store(&struct{ date, at time.Time }{date, time.Now()})
	}
	resp.Body = &received{resp.Body, w}
	return resp, nil
}

func (t *transport) counter(req *http.Request) *atomic.Int64 {
	query := req.URL.Query()
	switch {
	case req.Method == http.MethodPut:
		return &t.n.Put
	case req.Method == http.MethodHead:
		return &t.n.Head
	case req.Method == http.MethodDelete:
		return &t.n.Delete
	case query.Has("list-type"):
		return &t.n.List
	case query.Has("location"):
		return &t.n.Other
	}
	return &t.n.Get
}

// A watch ends a request that is silent for the timeout.
type watch struct {
	timeout time.Duration
	timer   *time.Timer
	ctx     context.Context
	cancel  context.CancelCauseFunc
}

func (w *watch) stop() {
	w.timer.Stop()
	w.cancel(nil)
}

// explain returns the reason for an error of the HTTP client.
func (w *watch) explain(err error) error {
	switch {
	case errors.Is(context.Cause(w.ctx), errSilent):
		return errSilent
	case err == io.EOF || strings.HasSuffix(err.Error(), "EOF"):
		return errClosed
	}
	return err
}

// A sent is the body of a request.
type sent struct {
	io.ReadCloser
	w *watch
}

func (s *sent) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	s.w.timer.Reset(s.w.timeout)
	return n, err
}

// A received is the body of an answer.
type received struct {
	io.ReadCloser
	w *watch
}

func (r *received) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		return n, r.w.explain(err)
	}
	r.w.timer.Reset(r.w.timeout)
	return n, err
}

func (r *received) Close() error {
	r.w.stop()
	return r.ReadCloser.Close()
}
