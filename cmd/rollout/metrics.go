package main

import (
	"context"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
)

// metrics renders the counters of a run for Prometheus. Names and units follow
// its naming rules; ids of runs, samples, agents and tasks are never labels, so the
// number of series does not grow with the run.
type metrics struct {
	registry *prometheus.Registry
	attempt  *prometheus.HistogramVec
	commit   prometheus.Gauge
	bytes    *prometheus.CounterVec
	shards   *prometheus.CounterVec
}

// newMetrics returns metrics that read stats when they are scraped.
func newMetrics(version string, stats func() collector.Stats) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		attempt: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "rollout_attempt_duration_seconds",
			Help:    "Wall time of one attempt, the removal of its agent included.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 13),

			NativeHistogramBucketFactor: 1.1,
		}, []string{"outcome"}),
		commit: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "rollout_last_commit_timestamp_seconds", Help: "When the last shard was committed.",
		}),
		shards: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rollout_shards_committed_total", Help: "Shards in the commit log.",
		}, []string{"kind"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rollout_shard_bytes_total", Help: "Bytes of committed shards.",
		}, []string{"kind"}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "rollout_build_info", Help: "Always 1.", ConstLabels: prometheus.Labels{"version": version},
	})
	build.Set(1)
	m.registry.MustRegister(m.attempt, m.commit, m.shards, m.bytes, build, statsCollector(stats),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// attemptFinished and committed are events of the collector and of the sink.
func (m *metrics) attemptFinished(r collector.Result) {
	outcome := "finished"
	if r.Err != nil {
		outcome = r.Class.String()
	}
	m.attempt.WithLabelValues(outcome).Observe(r.Duration.Seconds())
}

func (m *metrics) committed(c sink.Commit) {
	m.commit.Set(float64(c.CreatedAt.UnixMilli()) / 1e3)
	for _, s := range c.Shards {
		m.shards.WithLabelValues(s.Kind.String()).Inc()
		m.bytes.WithLabelValues(s.Kind.String()).Add(float64(s.Bytes))
	}
}

// serve answers /metrics, /healthz and /debug/pprof on l until ctx is done, and
// closes it. It returns a function that ends it and waits.
func (m *metrics) serve(ctx context.Context, l net.Listener) (stop func()) {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l) // ends when the server is closed; a scrape that fails is the scraper's to report
	}()
	ended := context.AfterFunc(ctx, func() { _ = server.Close() })
	return func() {
		ended()
		_ = server.Close()
		<-served
	}
}

// statsCollector turns a snapshot of the collector's counters into metrics.
type statsCollector func() collector.Stats

var (
	descPlanned   = prometheus.NewDesc("rollout_samples_planned", "Samples that this run is to collect.", nil, nil)
	descSamples   = prometheus.NewDesc("rollout_samples_total", "Samples by what became of them.", []string{"outcome"}, nil)
	descRemaining = prometheus.NewDesc("rollout_samples_remaining", "Samples that are neither committed, failed nor skipped.", nil, nil)
	descInFlight  = prometheus.NewDesc("rollout_samples_in_flight", "Samples that an endpoint works on.", []string{"endpoint"}, nil)
	descLimit     = prometheus.NewDesc("rollout_concurrency_limit", "Samples that an endpoint may work on at once.", []string{"endpoint"}, nil)
	descDown      = prometheus.NewDesc("rollout_breaker_open", "1 while a server is taken to be down.", []string{"endpoint"}, nil)
	descFailures  = prometheus.NewDesc("rollout_failures_total", "Failed samples by class.", []string{"class"}, nil)
	descAttempts  = prometheus.NewDesc("rollout_attempts_total", "Attempts: the first of a sample, or a retry.", []string{"class"}, nil)
	descTokens    = prometheus.NewDesc("rollout_tokens_total", "Tokens: sampled by the policy, and trainable.", []string{"kind"}, nil)
	descRows      = prometheus.NewDesc("rollout_rows_total", "Training sequences that the sink accepted.", nil, nil)
	descOldest    = prometheus.NewDesc("rollout_oldest_in_flight_seconds", "Age of the sample that is in flight for the longest time.", nil, nil)
)

// Describe sends nothing: which classes of failures there are shows with time.
func (statsCollector) Describe(chan<- *prometheus.Desc) {}

// Collect sends one snapshot.
func (f statsCollector) Collect(ch chan<- prometheus.Metric) {
	s := f()
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	count := func(d *prometheus.Desc, v int64, labels ...string) {
		send(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		send(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(descPlanned, float64(s.Planned))
	gauge(descRemaining, float64(s.Remaining))
	count(descSamples, int64(s.Committed), "committed")
	count(descSamples, int64(s.Failed), "failed")
	count(descSamples, int64(s.Skipped), "skipped")
	count(descAttempts, int64(s.Attempts-s.Retries), "first")
	count(descAttempts, int64(s.Retries), "retry")
	count(descTokens, s.Sampled, "sampled")
	count(descTokens, s.Trained, "trainable")
	count(descRows, int64(s.Rows))
	for class, n := range s.ByClass {
		count(descFailures, int64(n), class.String())
	}
	for _, e := range s.Endpoints {
		gauge(descInFlight, float64(e.InFlight), e.Name)
		gauge(descLimit, float64(e.Max), e.Name)
		down := 0.0
		if e.Down || e.Lost {
			down = 1
		}
		gauge(descDown, down, e.Name)
	}
	oldest := 0.0
	if s.Oldest != nil {
		oldest = time.Since(s.Oldest.Started).Seconds()
	}
	gauge(descOldest, oldest)
}
