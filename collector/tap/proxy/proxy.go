package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Proxy forwards requests to engines and passes each request for a generation to Config.Keep as a
// call. Create a Proxy with New. Its methods are safe for concurrent use.
type Proxy struct {
	cfg       Config
	balance   balance
	transport *http.Transport
	forward   *httputil.ReverseProxy

	memory   atomic.Int64 // size of the bodies in memory, in bytes
	draining atomic.Bool
	unmarked atomic.Bool // whether marking an answer has failed
	stats    counters
	told     sync.Map // kinds of faults that have been logged
	turns    *turns   // nil without Config.Continuity
	limits   limits
	listed   sync.Map // every name of a model that an engine has listed

	mu     sync.Mutex
	open   int               // number of requests that have been accepted but not finished
	shares map[string]*share // of the sessions with open calls, by the id of the session
	idle   chan struct{}     // closed when open becomes 0; nil if Wait is not waiting
}

// New returns a Proxy. It does not check the engines' health before Run is called.
func New(cfg Config) (*Proxy, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	p := &Proxy{cfg: cfg.withDefaults(), stats: counters{Stats: newStats()}, limits: defaultLimits(), shares: map[string]*share{}}
	if cfg.Continuity {
		p.turns = newTurns()
	}
	for _, u := range cfg.Engines {
		p.balance.engines = append(p.balance.engines, newEngine(u))
	}
	dialer := &net.Dialer{Timeout: dialTimeout}
	p.transport = &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return wire{c}, nil
		},
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 1 << 10,
		// uvicorn closes connections that are idle for 5 s. A request that is sent on a closed
		// connection is lost.
		IdleConnTimeout:       3 * time.Second,
		ExpectContinueTimeout: time.Second,
		DisableCompression:    true, // the client decides whether answers are compressed
		// The buffers are small, because only headers use them. Bodies bypass these buffers.
		WriteBufferSize: 1 << 10,
		ReadBufferSize:  1 << 10,
	}
	p.forward = &httputil.ReverseProxy{
		Rewrite:        rewrite,
		Transport:      roundTripper{p},
		ModifyResponse: watch,
		ErrorHandler:   p.failed,
		FlushInterval:  -1,
		BufferPool:     &copies,
		ErrorLog:       slog.NewLogLogger(p.cfg.Log.Handler(), slog.LevelDebug),
	}
	return p, nil
}

const dialTimeout = 5 * time.Second

// ServeHTTP serves sessions and the tap's own pages, and forwards all other requests.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	if path == "/healthz" {
		p.healthz(w)
		return
	}
	t := p.targetOf(r)
	switch {
	case t == nil && !p.allowed(r):
		errToken.send(w, formOf(path))
		return
	case t == nil && p.cfg.Pages != nil && strings.HasPrefix(path, "/tap/"):
		p.cfg.Pages.ServeHTTP(w, r)
		return
	case !p.enter(t != nil && t.ending()):
		p.count(func(s *Stats) { s.Refused++ })
		w.Header().Set("Connection", "close")
		errDraining.send(w, formOf(path))
		return
	}
	defer p.leave()
	var bad *refusal
	switch {
	case t != nil:
		bad = p.serveSession(w, r, t)
	case p.cfg.Sessions != nil && clean(path) == prefix:
		bad = p.beginSession(w, r)
	default:
		p.relay(w, r)
	}
	if bad != nil {
		bad.send(w, formOf(path))
	}
}

// relay forwards a request that does not belong to a session.
func (p *Proxy) relay(w http.ResponseWriter, r *http.Request) {
	p.removeSecrets(r.Header)
	x := &exchange{p: p}
	defer x.end()
	w.Header()["Content-Type"], w.Header()["Date"] = nil, nil // do not add these headers to the engine's answer
	if d := dialectOf(r.Method, r.URL.Path); d != nil {
		p.count(func(s *Stats) { s.Calls++ })
		if !x.begin(d, r) {
			http.Error(w, "rollout tap: incomplete request body", http.StatusBadRequest)
			return
		}
	}
	if x.body == nil {
		// The engine can answer before the request body is complete. Without full duplex, the HTTP
		// server would then close the body.
		_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 is always full duplex
	}
	defer func() {
		// If the engine cuts off its answer, ReverseProxy panics. Another goroutine flushes the
		// head. Without this Flush, the client would not receive the head after an early panic.
		if v := recover(); v != nil {
			if x.headed {
				_ = http.NewResponseController(w).Flush()
			}
			panic(v)
		}
	}()
	p.forward.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x)))
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// rewrite prepares the outgoing request. ReverseProxy has removed the forwarding headers of the
// client, and rewrite restores them. The roundTripper sets the engine's address later.
func rewrite(r *httputil.ProxyRequest) {
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if v, ok := r.In.Header[name]; ok {
			r.Out.Header[name] = v
		}
	}
	r.Out.URL.RawQuery = r.In.URL.RawQuery
}

func watch(res *http.Response) error {
	if x := exchangeOf(res.Request.Context()); x != nil {
		err := x.answered(res)
		x.headed = err == nil && res.StatusCode >= 100 // WriteHeader panics for a status below 100
		return err
	}
	return nil
}

// failed sends an error to the client because no engine answered or because the answer cannot be
// marked. If the client has disconnected, failed does nothing.
func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return
	}
	if unmarked, ok := errors.AsType[unmarkedError](err); ok {
		http.Error(w, "rollout tap: "+unmarked.Error(), http.StatusBadGateway)
		return
	}
	p.count(func(s *Stats) { s.Unreachable++ })
	p.once(slog.LevelWarn, "engine_unreachable", err)
	http.Error(w, fmt.Sprintf("rollout tap: no engine answered: %v", withoutBody(err)), http.StatusBadGateway)
}

// withoutBody returns err. If err quotes a part of an invalid answer, withoutBody returns a generic
// error instead.
func withoutBody(err error) error {
	if text := err.Error(); strings.Contains(text, "malformed") {
		return errors.New("the answer is not valid HTTP")
	}
	return err
}

// Drain makes the proxy refuse new requests. Requests that are already open finish normally.
func (p *Proxy) Drain() {
	if !p.draining.Swap(true) {
		p.cfg.Log.Info("drain")
	}
}

// Wait waits until no request is open. If ctx ends first, Wait returns the cause. Call Drain before
// Wait.
func (p *Proxy) Wait(ctx context.Context) error {
	p.mu.Lock()
	if p.open == 0 {
		p.mu.Unlock()
		return nil
	}
	if p.idle == nil {
		p.idle = make(chan struct{})
	}
	idle := p.idle
	p.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Open returns the number of requests that have been accepted but not finished.
func (p *Proxy) Open() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int64(p.open)
}

// enter counts a new request as open. If the proxy is draining, enter returns false instead, unless
// always is true.
func (p *Proxy) enter(always bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.draining.Load() && !always {
		return false
	}
	p.open++
	return true
}

func (p *Proxy) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open--; p.open == 0 && p.idle != nil {
		close(p.idle)
		p.idle = nil
	}
}

// guard calls a function. If the function panics, guard recovers, counts the panic and returns
// false, because a bug in the tap must not harm the call.
func (p *Proxy) guard(where string, do func()) (ok bool) {
	defer func() {
		if v := recover(); v != nil {
			p.count(func(s *Stats) { s.Panics++ })
			p.once(slog.LevelError, "panic_"+where, fmt.Errorf("%v", v))
		}
	}()
	do()
	return true
}

// once logs the first fault of each kind.
func (p *Proxy) once(level slog.Level, kind string, err error) {
	if _, again := p.told.LoadOrStore(kind, true); again {
		return
	}
	p.cfg.Log.Log(context.Background(), level, "fault", "kind", kind, "error", withoutBody(err).Error())
}

// A closeless body ignores Close. If a transport fails before it reads the body, the body stays
// open and can be sent to another engine.
type closeless struct {
	io.Reader
	read bool
}

func (c *closeless) Read(p []byte) (int, error) {
	c.read = true
	return c.Reader.Read(p)
}

func (c *closeless) Close() error { return nil }

// Close closes the idle connections to engines.
func (p *Proxy) Close() { p.transport.CloseIdleConnections() }
