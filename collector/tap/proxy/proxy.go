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

// A Proxy passes requests on to engines and keeps the calls among them. Make one with New. It
// is safe for concurrent use.
type Proxy struct {
	cfg       Config
	balance   balance
	transport *http.Transport
	forward   *httputil.ReverseProxy

	memory   atomic.Int64 // bytes of the bodies that are held
	draining atomic.Bool
	unmarked atomic.Bool // an answer could not be marked
	stats    counters
	told     sync.Map // faults that were logged

	mu   sync.Mutex
	open int           // requests that are with engines
	idle chan struct{} // closed when none is, if somebody waits
}

// New returns a Proxy. Its checks of the engines' health begin with Run.
func New(cfg Config) (*Proxy, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	p := &Proxy{cfg: cfg.withDefaults()}
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
		// Engines on uvicorn close a connection that is idle for 5 s. One that is used just
		// then is lost with its request.
		IdleConnTimeout:       3 * time.Second,
		ExpectContinueTimeout: time.Second,
		DisableCompression:    true, // what the client accepts is the client's to say
		// Heads fit; bodies pass by.
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

// dialTimeout bounds the making of a connection to an engine.
const dialTimeout = 5 * time.Second

// ServeHTTP answers the tap's own pages and passes everything else on.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch path := r.URL.Path; {
	case path == "/healthz":
		p.healthz(w)
		return
	case p.cfg.Pages != nil && strings.HasPrefix(path, "/tap/"):
		p.cfg.Pages.ServeHTTP(w, r)
		return
	case !p.enter():
		p.stats.refused.Add(1)
		w.Header().Set("Retry-After", "1")
		w.Header().Set("Connection", "close")
		http.Error(w, "rollout tap: it is ending and takes no new requests", http.StatusServiceUnavailable)
		return
	}
	defer p.leave()
	x := &exchange{p: p}
	defer x.end()
	w.Header()["Content-Type"], w.Header()["Date"] = nil, nil // nothing is added to what the engine says
	if d := dialectOf(r.Method, r.URL.Path); d != nil {
		p.stats.calls.Add(1)
		if !x.begin(d, r) {
			http.Error(w, "rollout tap: the body of the request did not come to its end", http.StatusBadRequest)
			return
		}
	}
	if x.body == nil {
		// The body goes on while the answer may come: the server must not close it then.
		_ = http.NewResponseController(w).EnableFullDuplex() // other protocols always are
	}
	p.forward.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x)))
}

// exchangeKey is the key of the exchange in the context of its request.
type exchangeKey struct{}

// exchangeOf returns the exchange of a request.
func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// rewrite makes the request to the engine of the one to the proxy. Where it goes is decided by
// the roundTripper. ReverseProxy takes out hop-by-hop headers; what it takes out because
// proxies commonly add it is put back.
func rewrite(r *httputil.ProxyRequest) {
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if v, ok := r.In.Header[name]; ok {
			r.Out.Header[name] = v
		}
	}
	r.Out.URL.RawQuery = r.In.URL.RawQuery
}

// watch lets the exchange read an answer while it passes.
func watch(res *http.Response) error {
	if x := exchangeOf(res.Request.Context()); x != nil {
		return x.answered(res)
	}
	return nil
}

// failed tells the client that no engine answered, or that it must not have the answer. A client
// that went is not told.
func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return
	}
	if unmarked, ok := errors.AsType[unmarkedError](err); ok {
		http.Error(w, "rollout tap: "+unmarked.Error(), http.StatusBadGateway)
		return
	}
	p.stats.unreachable.Add(1)
	p.once(slog.LevelWarn, "engine_unreachable", err)
	http.Error(w, fmt.Sprintf("rollout tap: no engine answered: %v", withoutBody(err)), http.StatusBadGateway)
}

// withoutBody returns err without what net/http quotes of an answer that it cannot read.
func withoutBody(err error) error {
	if text := err.Error(); strings.Contains(text, "malformed") {
		return errors.New("the answer is not HTTP")
	}
	return err
}

// Drain refuses new requests from now on. Those that are with engines end as ever.
func (p *Proxy) Drain() {
	if !p.draining.Swap(true) {
		p.cfg.Log.Info("drain")
	}
}

// Wait returns when no request is with an engine, or with the cause of ctx. It is for after
// Drain.
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

// Open returns how many requests are with engines.
func (p *Proxy) Open() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int64(p.open)
}

// enter counts a request that goes to an engine, and reports false if none may any more.
func (p *Proxy) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.draining.Load() {
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

// guard calls do, which is the tap's own work and not the call's, and counts a panic of it.
func (p *Proxy) guard(where string, do func()) {
	defer func() {
		if v := recover(); v != nil {
			p.stats.panics.Add(1)
			p.once(slog.LevelError, "panic_"+where, fmt.Errorf("%v", v))
		}
	}()
	do()
}

// once logs the first of each kind of fault.
func (p *Proxy) once(level slog.Level, kind string, err error) {
	if _, again := p.told.LoadOrStore(kind, true); again {
		return
	}
	p.cfg.Log.Log(context.Background(), level, "fault", "kind", kind, "error", withoutBody(err).Error())
}

// A closeless body is not closed by a transport that has not read it, so that another engine
// can be given it.
type closeless struct {
	io.Reader
	read bool
}

func (c *closeless) Read(p []byte) (int, error) {
	c.read = true
	return c.Reader.Read(p)
}

func (c *closeless) Close() error { return nil }

// Close closes the connections to engines that are not in use.
func (p *Proxy) Close() { p.transport.CloseIdleConnections() }
