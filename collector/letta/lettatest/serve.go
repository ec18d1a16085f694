package lettatest

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"testing/synctest"

	"github.com/rollout-rl/rollout/collector/letta"
)

// A PipeListener is a listener without sockets. A synctest bubble can detect blocked operations on
// a PipeListener, but not blocked operations on sockets.
type PipeListener struct {
	conns chan net.Conn
	done  chan struct{}
}

// NewPipeListener returns a listener. Only its method Dial can connect to it.
func NewPipeListener() *PipeListener {
	return &PipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

// Accept waits for a call of Dial and returns the connection.
func (l *PipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close makes Accept and Dial return net.ErrClosed.
func (l *PipeListener) Close() error { close(l.done); return nil }

// Addr returns a placeholder.
func (l *PipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// Dial connects to the listener.
func (l *PipeListener) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// InBubble runs f in fake time, with a client that uses a real HTTP server and transport.
func InBubble(t *testing.T, h http.HandlerFunc, cfg letta.ClientConfig, f func(t *testing.T, c *letta.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := NewPipeListener()
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // only after reading the body can the server notice that the client disconnected
			h(w, r)
		})}
		served := make(chan struct{})
		go func() { defer close(served); _ = s.Serve(l) }()
		cfg.BaseURL, cfg.Dial = "http://letta.test", l.Dial
		cfg.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
		c, err := letta.NewClient(cfg)
		if err != nil {
			t.Fatal(err)
		}
		f(t, c)
		c.CloseIdle()
		_ = s.Close()
		<-served
	})
}

// Serve starts a server with the handler h and returns a client for it.
func Serve(tb testing.TB, h http.HandlerFunc, change ...func(*letta.ClientConfig)) *letta.Client {
	tb.Helper()
	s := httptest.NewServer(h)
	tb.Cleanup(s.Close)
	cfg := letta.ClientConfig{BaseURL: s.URL, Version: "test"}
	for _, f := range change {
		f(&cfg)
	}
	c, err := letta.NewClient(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.CloseIdle)
	return c
}
