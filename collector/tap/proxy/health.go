package proxy

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// maxMissed is the number of consecutive failed checks after which an engine counts as down. It is
// above 1 because a busy engine can miss a check.
const maxMissed = 3

// Run checks the health of the engines until ctx ends.
func (p *Proxy) Run(ctx context.Context) {
	var checks sync.WaitGroup
	for _, e := range p.balance.engines {
		checks.Go(func() {
			tick := time.NewTicker(p.cfg.HealthEvery)
			defer tick.Stop()
			for {
				p.check(ctx, e)
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
			}
		})
	}
	checks.Wait()
	p.transport.CloseIdleConnections()
}

// CheckHealth checks all engines now. A caller that has proved that an engine is up again does not
// have to wait until Run notices it. CheckHealth returns when all engines have answered, or at the
// latest after Config.HealthEvery or a second.
func (p *Proxy) CheckHealth(ctx context.Context) {
	var checks sync.WaitGroup
	for _, e := range p.balance.engines {
		checks.Go(func() { p.check(ctx, e) })
	}
	checks.Wait()
}

// check sends GET /health to an engine. Any status below 500 means that the engine is up, because
// an engine without a health page answers 404. If no connection can be made, the engine immediately
// counts as down.
func (p *Proxy) check(ctx context.Context, e *engine) {
	ctx, cancel := context.WithTimeout(ctx, max(p.cfg.HealthEvery, time.Second))
	defer cancel()
	err := p.healthy(ctx, e)
	switch {
	case err == nil:
		e.missed.Store(0)
		p.mark(e, false, nil)
	case context.Cause(ctx) == context.Canceled: // Run is about to return
	case e.missed.Add(1) >= maxMissed || isDial(err):
		p.mark(e, true, err)
	}
}

func (p *Proxy) healthy(ctx context.Context, e *engine) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.url.JoinPath("health").String(), http.NoBody)
	if err != nil {
		return err
	}
	res, err := p.transport.RoundTrip(req) //nolint:bodyclose // finishOff closes it
	if err != nil {
		return err
	}
	finishOff(res.Body)
	if res.StatusCode >= http.StatusInternalServerError {
		return fmt.Errorf("GET /health: %s", res.Status)
	}
	return nil
}

// healthz answers 200 if the tap accepts requests and at least one engine is up, otherwise 503. The
// status is also 200 if calls cannot be stored: another proxy would not help, because each session
// belongs to one proxy, and calls outside sessions are still forwarded.
func (p *Proxy) healthz(w http.ResponseWriter) {
	if p.draining.Load() {
		http.Error(w, "draining", http.StatusServiceUnavailable)
		return
	}
	if err := p.Up(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	state := ""
	if err := p.unrecorded(); err != nil {
		state += fmt.Sprintf("degraded: calls of sessions fail with status 507 (%v)\n", err)
	}
	if err := p.cfg.Unkept(); err != nil {
		state += fmt.Sprintf("degraded: the tap forwards calls outside sessions but cannot keep them (%v)\n", err)
	}
	_, _ = io.WriteString(w, cmp.Or(state, "ok\n"))
}

// unrecorded returns nil if the last write to the files of sessions succeeded.
func (p *Proxy) unrecorded() error {
	if p.cfg.Sessions == nil {
		return nil
	}
	return p.cfg.Sessions.Stats().Err
}

// Up returns nil if an engine was up when its health was last checked, otherwise an error.
func (p *Proxy) Up() error {
	for _, e := range p.balance.engines {
		if !e.down.Load() {
			return nil
		}
	}
	return fmt.Errorf("no engine is up (%d configured)", len(p.balance.engines))
}
