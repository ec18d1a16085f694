package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// maxMissed is the number of failed checks in a row after which an engine is down. A busy engine
// can be late.
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

// check sends GET /health to an engine. Any answer except a 5xx means that it is up, because an
// engine without that page answers 404. If the connection fails, the engine is down at once.
func (p *Proxy) check(ctx context.Context, e *engine) {
	ctx, cancel := context.WithTimeout(ctx, max(p.cfg.HealthEvery, time.Second))
	defer cancel()
	err := p.healthy(ctx, e)
	switch {
	case err == nil:
		e.missed.Store(0)
		p.mark(e, false, nil)
	case context.Cause(ctx) == context.Canceled: // Run is ending
	case e.missed.Add(1) >= maxMissed || isDial(err):
		p.mark(e, true, err)
	}
}

func (p *Proxy) healthy(ctx context.Context, e *engine) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.url.JoinPath("health").String(), http.NoBody)
	if err != nil {
		return err
	}
	res, err := p.transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()                                      //nolint:errcheck // read as far as it is wanted
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 4<<10)) // allows reuse of the connection
	if res.StatusCode >= http.StatusInternalServerError {
		return fmt.Errorf("GET /health: %s", res.Status)
	}
	return nil
}

// healthz reports whether the tap works: it accepts requests and an engine is up. If calls cannot
// be kept, they still pass, so the status stays 200.
func (p *Proxy) healthz(w http.ResponseWriter) {
	if p.draining.Load() {
		http.Error(w, "draining", http.StatusServiceUnavailable)
		return
	}
	for _, e := range p.balance.engines {
		if e.down.Load() {
			continue
		}
		if err := p.cfg.Unkept(); err != nil {
			_, _ = fmt.Fprintf(w, "degraded: calls pass but are not kept: %v\n", err)
		} else {
			_, _ = io.WriteString(w, "ok\n")
		}
		return
	}
	http.Error(w, fmt.Sprintf("none of %d engines is up", len(p.balance.engines)), http.StatusServiceUnavailable)
}
