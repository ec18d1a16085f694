package show

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/rollout-rl/rollout/collector"
)

// Serve serves a run's /metrics, /healthz and /readyz on l until ctx is done, and then closes l. If
// profiles is set, it also serves /debug/pprof. The returned function closes the server and waits
// until it has stopped.
func (m *Metrics) Serve(ctx context.Context, l net.Listener, profiles bool, v Vitals) (stop func()) {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(m.gather(v), promhttp.HandlerOpts{EnableOpenMetrics: true}))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := v.ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	if profiles {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l) // if Serve fails early, Prometheus reports the failed scrapes
	}()
	ended := context.AfterFunc(ctx, func() { _ = server.Close() })
	return func() {
		ended()
		_ = server.Close()
		<-served
	}
}

// gather returns a gatherer for the event metrics and for the values of v.
func (m *Metrics) gather(v Vitals) prometheus.Gatherer {
	stats := prometheus.NewRegistry()
	stats.MustRegister(snapshot(func(out sender) { out.vitals(v, m.prompted.Load()) }))
	return prometheus.Gatherers{m.registry, stats}
}

// writable is the constant W_OK of access(2).
const writable = 2

// ready returns nil if the run can make progress. Otherwise it returns the reason: no endpoint is
// up, the folder is not writable, or its disk is full.
func (v Vitals) ready() error {
	if err := endpointsUp(v.Collector()); err != nil {
		return err
	}
	if err := syscall.Access(v.Dir, writable); err != nil {
		return fmt.Errorf("storage: %w", err)
	}
	if free, ok := diskFree(v.Dir); ok && free == 0 {
		return fmt.Errorf("storage: %w", syscall.ENOSPC)
	}
	return nil
}

func endpointsUp(s collector.Stats) error {
	for _, e := range s.Endpoints {
		if !e.Down && !e.Lost {
			return nil
		}
	}
	return errors.New("no endpoint is up")
}
