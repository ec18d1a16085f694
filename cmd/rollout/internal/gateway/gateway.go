// Package gateway serves the sessions of a run that drives a harness. It is a tap inside the
// collector: the harness calls the model through it, and every call is recorded in a file of the
// run's folder.
package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/connect"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/render"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/session/store"
	"github.com/rollout-rl/rollout/collector/tap/proxy"
)

// A Gateway serves sessions on the loopback interface. It implements harness.Sessions, except before
// Start.
type Gateway struct {
	cfg      proxy.Config
	listener net.Listener
	store    *store.Store
	proxy    *proxy.Proxy
	server   *http.Server
	stop     context.CancelFunc
}

// New listens on a free port of the loopback interface. It serves nothing before Start. The model is needed
// only to render prompts; otherwise it can be nil.
func New(ctx context.Context, c *config.Config, m *prompt.Model) (*Gateway, error) {
	// No client knows the token, so only the keys of sessions open a path to an engine.
	g := &Gateway{cfg: proxy.Config{Token: rand.Text()}}
	for _, text := range c.Engine.URLs {
		u, err := connect.EngineURL(text)
		if err != nil {
			return nil, exit.Usagef("engine.urls: %w", err)
		}
		g.cfg.Engines = append(g.cfg.Engines, u)
	}
	set, err := proxy.ParseSet(c.Harness.Set)
	if err != nil {
		return nil, exit.Usagef("harness.set: %w", err)
	}
	g.cfg.Set, g.cfg.Continuity, g.cfg.Inside = set, c.Harness.Continuity, c.Output.Inside
	if c.Harness.Render {
		g.cfg.Renderer = render.New(m)
	}
	if err := g.cfg.Validate(); err != nil {
		return nil, exit.Usagef("engine.urls: %w", err)
	}
	g.listener, err = new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, exit.With(exit.Unusable, fmt.Errorf("cannot listen for the calls of the harness: %w", err))
	}
	return g, nil
}

// URL is the base URL of the gateway.
func (g *Gateway) URL() string { return "http://" + g.listener.Addr().String() }

// Probe finds out how the engines return token ids, with a few small calls. If it returns an error,
// the engines that answered have a model.
func (g *Gateway) Probe(ctx context.Context) ([]proxy.EngineStats, error) {
	cfg := g.cfg
	cfg.Sessions, cfg.Log = nil, nil
	p, err := proxy.New(cfg) // knows nothing about the engines yet
	if err != nil {
		return nil, err
	}
	defer p.Close()
	err = p.Probe(ctx)
	if _, unreachable := errors.AsType[*net.OpError](err); unreachable {
		err = unreachableError{err}
	}
	return p.Stats().Engines, err
}

// Context returns the smallest context length of the engines, in tokens. It is 0 if no engine states
// one.
func Context(engines []proxy.EngineStats) (least int64) {
	for _, e := range engines {
		if e.Tokens > 0 && (least == 0 || e.Tokens < least) {
			least = e.Tokens
		}
	}
	return least
}

// An unreachableError means that an engine could not be reached.
type unreachableError struct{ error }

func (e unreachableError) Unwrap() error        { return e.error }
func (e unreachableError) Is(target error) bool { return target == collector.ErrConnection }

// Start opens the sessions in the folder dir with the given file mode, and begins to serve
// them.
func (g *Gateway) Start(dir string, mode fs.FileMode, log *slog.Logger) (err error) {
	if g.store, err = store.Open(store.Config{Dir: dir, Mode: mode, Log: log}); err != nil {
		return exit.With(exit.Storage, err)
	}
	g.cfg.Sessions, g.cfg.Log = g.store, log
	if g.proxy, err = proxy.New(g.cfg); err != nil {
		return errors.Join(err, g.store.Close())
	}
	ctx, stop := context.WithCancel(context.Background())
	g.stop = stop
	g.server = &http.Server{Handler: g.proxy, ReadHeaderTimeout: 30 * time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	go g.proxy.Run(ctx)
	go g.server.Serve(g.listener) //nolint:errcheck // it returns when the server is closed
	return nil
}

// Close stops serving and closes the store. Calls in flight are cut.
func (g *Gateway) Close() {
	if g.server == nil {
		_ = g.listener.Close() // nothing was served
		return
	}
	g.stop()
	_ = g.server.Close() // all that matters has been recorded
	g.proxy.Close()
	_ = g.store.Close() // every sealed session is already synced
}

// Check makes a few small calls. If no engine answers them, the error wraps
// collector.ErrUnavailable. The proxy's last health check is not enough: it can be older than an
// outage, and an engine can be healthy and fail every call.
func (g *Gateway) Check(ctx context.Context) error {
	engines, err := g.Probe(ctx)
	if err == nil || slices.ContainsFunc(engines, func(e proxy.EngineStats) bool { return e.Model != "" }) {
		g.proxy.CheckHealth(ctx) // otherwise the proxy refuses calls until its next health check
		return nil
	}
	return fmt.Errorf("%w: %w", collector.ErrUnavailable, err)
}

// Begin implements harness.Sessions.
func (g *Gateway) Begin(h session.Head) (session.Key, error) { return g.store.Begin(h) }

// End implements harness.Sessions. It does not seal a session whose last call could not be recorded:
// the harness can have failed because of this, so the attempt proves nothing.
func (g *Gateway) End(ctx context.Context, key session.Key, e session.End) error {
	x, err := g.store.Session(key)
	if err != nil {
		return err
	}
	if err := x.Refused(); err != nil {
		return err
	}
	_, err = g.proxy.EndSession(ctx, x, e, false)
	return err
}

// Read implements harness.Sessions.
func (g *Gateway) Read(id string) (*session.Record, error) { return g.store.Read(id) }

// Sealed reports whether the store has a sealed session with this id.
func (g *Gateway) Sealed(id string) bool { return g.store.IsSealed(id) }

// Clear removes every session, open or sealed, except those for which keep returns true.
func (g *Gateway) Clear(keep func(id string) bool) error {
	_, err := g.store.Clear(keep)
	return err
}

// Remove implements harness.Sessions.
func (g *Gateway) Remove(id string) error { return g.store.Remove(id) }
