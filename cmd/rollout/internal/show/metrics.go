package show

import (
	"context"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/limit"
	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

// Metrics exports a run to Prometheus. Names and units follow Prometheus's naming rules. Every
// label has a fixed set of values or one value per endpoint, so the number of series does not grow
// with the run. IDs and error messages are never label values. Most series exist from the start,
// with the value 0.
//
// Events are counted when they happen. The values of snapshots are read on each scrape
// (metrics_stats.go). Counters cover only this process. In a resumed run, they start at zero, and
// rollout_samples_earlier counts the samples from earlier processes.
type Metrics struct {
	registry *prometheus.Registry

	// Samples.
	duration, working, tokens   *prometheus.HistogramVec
	reward, turns               prometheus.Observer
	truncated, failures, groups *prometheus.CounterVec
	prompted                    atomic.Int64
	open                        openGroups

	// Attempts.
	attempts, taken, waited *prometheus.CounterVec
	attempt, first          *prometheus.HistogramVec
	admission               prometheus.Observer

	// Requests and endpoints.
	requests, changes *prometheus.CounterVec
	exchange          *prometheus.HistogramVec
	kv, queue         *prometheus.GaugeVec

	// Storage.
	commit        prometheus.Gauge
	bytes, shards *prometheus.CounterVec
	seal          *prometheus.HistogramVec
	fsync         prometheus.Observer
}

// Vitals contains the sources that are read on each scrape.
type Vitals struct {
	Collector func() collector.Stats
	Sink      func() sink.Stats
	Dir       string // the run's folder
	// Taps returns the statistics of the taps. It is nil if the run has no tap.
	Taps func() tap.IndexStats
}

// longBuckets are for durations from a second to over an hour. shortBuckets are for durations from
// a millisecond to a minute.
var (
	longBuckets  = prometheus.ExponentialBuckets(1, 2, 13)
	shortBuckets = prometheus.ExponentialBuckets(0.001, 4, 9)
)

// rewardBuckets returns the bucket bounds from -1 to 1 in steps of 0.1. It divides integers.
// Repeated addition of 0.1 would miss 0 by a rounding error.
func rewardBuckets() (b []float64) {
	for i := -10; i <= 10; i++ {
		b = append(b, float64(i)/10)
	}
	return b
}

// nativeFactor is the bucket growth factor of native histograms. A Prometheus server uses native
// histograms only if its configuration enables them.
const nativeFactor = 1.1

// NewMetrics returns the metrics of a process, with all known series at zero.
func NewMetrics(version string) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), open: openGroups{groups: map[string]*openGroup{}}}
	registered := promauto.With(m.registry)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return registered.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return registered.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return registered.NewHistogramVec(prometheus.HistogramOpts{
			Name: name, Help: help, Buckets: buckets, NativeHistogramBucketFactor: nativeFactor,
			NativeHistogramMaxBucketNumber: 160, NativeHistogramMinResetDuration: time.Hour,
		}, labels)
	}
	one := func(name, help string, buckets []float64) prometheus.Observer {
		return histogram(name, help, buckets).WithLabelValues()
	}

	m.duration = histogram("rollout_sample_duration_seconds", "Duration of a sample, including retries.", longBuckets, "outcome")
	m.working = histogram("rollout_sample_working_seconds", "Duration of a sample, excluding queueing and backoff.", longBuckets, "outcome")
	m.reward = one("rollout_reward", "Rewards of scored samples.", rewardBuckets())
	m.turns = one("rollout_turns", "Model calls per sample, as counted by the server.", prometheus.ExponentialBuckets(1, 2, 9))
	m.tokens = histogram("rollout_sample_tokens", "Tokens per sample, as counted by the server.", prometheus.ExponentialBuckets(16, 4, 9), "kind")
	m.truncated = counter("rollout_truncated_total", "Samples that ended at a limit, by reason.", "reason")
	m.failures = counter("rollout_failures_total", "Samples that failed permanently, by class.", "class")
	m.groups = counter("rollout_groups_total", "Groups whose last sample ended in this process, by outcome.", "outcome", "reason")

	m.attempts = counter("rollout_attempts_total", "Attempts started, by failure class of the previous attempt.", "class")
	m.attempt = histogram("rollout_attempt_duration_seconds", "Duration of an attempt, including the deletion of its agent.", longBuckets, "outcome")
	m.admission = one("rollout_admission_wait_seconds", "Time that an attempt waited for a free slot at an endpoint.", prometheus.ExponentialBuckets(0.01, 4, 9))
	m.first = histogram("rollout_time_to_first_answer_seconds", "Time from the first send of an attempt to its answer.", longBuckets, "endpoint")
	m.taken = counter("rollout_reattached_total", "Attempts from earlier processes, by result of reattaching.", "endpoint", "reason")
	m.waited = counter("rollout_retry_wait_seconds_total", "Total backoff before retries, by failure class.", "reason")

	m.requests = counter("rollout_http_requests_total", "HTTP requests, by response status (error: no response).", "endpoint", "method", "code")
	m.exchange = histogram("rollout_http_request_duration_seconds", "Time from a request until its reply was read. Excludes sends, which last as long as the rollout.", shortBuckets, "endpoint", "method")
	m.changes = counter("rollout_concurrency_changes_total", "Changes to an endpoint's concurrency limit, by direction and reason.", "endpoint", "direction", "reason")
	m.kv = gauge("rollout_engine_kv_cache_usage_ratio", "Share of the engine's KV cache in use, if the engine is polled.", "endpoint")
	m.queue = gauge("rollout_engine_requests_waiting", "Requests in the engine's queue, if the engine is polled.", "endpoint")

	m.commit = gauge("rollout_last_commit_timestamp_seconds", "Unix time of the last commit of a shard, or 0 if there is none.").WithLabelValues()
	m.shards = counter("rollout_shards_committed_total", "Shards in the commit log.", "format", "kind")
	m.bytes = counter("rollout_shard_bytes_total", "Bytes of committed shards.", "format", "kind")
	m.seal = histogram("rollout_shard_commit_duration_seconds", "Duration of a commit, by stage.", shortBuckets, "stage")
	m.fsync = one("rollout_wal_fsync_duration_seconds", "Duration of an fsync of the write-ahead log.", prometheus.ExponentialBuckets(0.0001, 4, 9))

	build := gauge("rollout_build_info", "Always 1.", "version", "go_version", "schema_version")
	build.WithLabelValues(version, runtime.Version(), strconv.Itoa(sink.SchemaVersion)).Set(1)
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.begin()
	return m
}

// Values of the labels "outcome" and "reason", for samples and groups.
const (
	outcomeCommitted = "committed"
	outcomeFailed    = "failed"
	outcomeSkipped   = "skipped"
	outcomeFiltered  = "filtered"

	groupComplete = "complete"
	groupPartial  = "partial"

	reasonZeroVariance = "zero_variance"
	reasonOther        = "other"

	reasonMaxSteps     = "max_steps"
	reasonMaxTokens    = "max_tokens"
	reasonMaxRowTokens = "max_row_tokens"
)

// begin creates the series whose labels are known in advance, so that rate() sees their first
// increment.
func (m *Metrics) begin() {
	for _, outcome := range []string{outcomeCommitted, outcomeFailed, outcomeSkipped} {
		m.duration.WithLabelValues(outcome)
		m.working.WithLabelValues(outcome)
	}
	for _, kind := range []string{"prompt", "completion"} {
		m.tokens.WithLabelValues(kind)
	}
	for _, reason := range []string{reasonMaxSteps, reasonMaxTokens, reasonMaxRowTokens} {
		m.truncated.WithLabelValues(reason)
	}
	m.attempt.WithLabelValues("finished")
	for _, c := range collector.Classes() {
		m.failures.WithLabelValues(c.String())
		m.attempt.WithLabelValues(c.String())
		if c.Retryable() || c.DataRetryable() {
			m.waited.WithLabelValues(c.String())
		}
	}
	for _, outcome := range []string{groupComplete, groupPartial} {
		for _, reason := range []string{reasonZeroVariance, reasonOther} {
			m.groups.WithLabelValues(outcome, reason)
		}
	}
	for _, k := range collector.Kinds() {
		m.attempts.WithLabelValues(k.String())
	}
	for _, f := range []sink.Format{sink.Parquet, sink.Arrow} {
		for _, k := range []sink.Kind{sink.KindData, sink.KindFailures} {
			m.shards.WithLabelValues(f.String(), k.String())
			m.bytes.WithLabelValues(f.String(), k.String())
		}
	}
	for _, stage := range []string{"encode", "sync", "check", "commit"} {
		m.seal.WithLabelValues(stage)
	}
}

// Endpoint creates the series for one endpoint.
func (m *Metrics) Endpoint(name string) {
	m.first.WithLabelValues(name)
	m.taken.WithLabelValues(name, "taken_over")
	m.taken.WithLabelValues(name, "gone")
	for _, r := range limit.Reasons() {
		for _, direction := range []string{"up", "down"} {
			m.changes.WithLabelValues(name, direction, r.String())
		}
	}
}

// sampleFinished counts a sample that was passed to the sink.
func (m *Metrics) sampleFinished(s *tokenize.Sample) {
	outcome := outcomeCommitted
	if len(s.Rows) == 0 && len(s.Failures) > 0 {
		outcome = outcomeFailed
		class := s.Failures[0].Class
		if class == collector.ClassCensored.String() {
			outcome = outcomeSkipped
		}
		if _, ok := collector.ParseClass(class); ok && outcome == outcomeFailed {
			m.failures.WithLabelValues(class).Inc()
		}
	}
	m.duration.WithLabelValues(outcome).Observe(s.Duration.Seconds())
	m.working.WithLabelValues(outcome).Observe(s.Working.Seconds())
	m.prompted.Add(s.PromptTokens)
	if group, ended := m.open.add(s, outcome == outcomeCommitted); ended {
		m.groups.WithLabelValues(group.outcome(), group.reason()).Inc()
	}
	if outcome != outcomeCommitted {
		return
	}
	m.turns.Observe(float64(s.Steps))
	m.tokens.WithLabelValues("prompt").Observe(float64(s.PromptTokens))
	m.tokens.WithLabelValues("completion").Observe(float64(s.CompletionTokens))
	if s.Reward != nil {
		m.reward.Observe(*s.Reward)
	}
	var flags tokenize.Flags
	for i := range s.Rows {
		flags |= s.Rows[i].Flags
	}
	for reason, is := range map[string]bool{
		reasonMaxSteps:     s.Status == collector.StatusMaxSteps,
		reasonMaxTokens:    s.Status == collector.StatusTruncated || flags&tokenize.FlagLength != 0,
		reasonMaxRowTokens: flags&tokenize.FlagCut != 0,
	} {
		if is {
			m.truncated.WithLabelValues(reason).Inc()
		}
	}
}

// The following methods count the collector's events.
func (m *Metrics) attemptStarted(a collector.Attempt, _ string) {
	m.attempts.WithLabelValues(a.Kind.String()).Inc()
}

func (m *Metrics) attemptFinished(r collector.Result) {
	outcome := "finished"
	if r.Err != nil {
		outcome = r.Class.String()
	}
	m.attempt.WithLabelValues(outcome).Observe(r.Duration.Seconds())
	m.admission.Observe(r.Admission.Seconds())
	if r.FirstAnswer > 0 {
		m.first.WithLabelValues(r.Endpoint).Observe(r.FirstAnswer.Seconds())
	}
}

func (m *Metrics) reattached(_ collector.Attempt, endpoint string, err error) {
	reason := "taken_over"
	if err != nil {
		reason = "gone"
	}
	m.taken.WithLabelValues(endpoint, reason).Inc()
}

func (m *Metrics) retryWaiting(_ collector.Attempt, c collector.Class, delay time.Duration) {
	m.waited.WithLabelValues(c.String()).Add(delay.Seconds())
}

func (m *Metrics) limitChanged(endpoint string, from, to int, reason string) {
	direction := "up"
	if to < from {
		direction = "down"
	}
	m.changes.WithLabelValues(endpoint, direction, reason).Inc()
}

// engine sets the gauges for an endpoint's engine. A negative value means that the number is
// unknown. In that case, the gauge keeps its value.
func (m *Metrics) engine(endpoint string, e limit.Engine) {
	if e.KVUsage >= 0 {
		m.kv.WithLabelValues(endpoint).Set(e.KVUsage)
	}
	if e.Waiting >= 0 {
		m.queue.WithLabelValues(endpoint).Set(e.Waiting)
	}
}

// codeLabel returns the label for an HTTP status code. Codes that HTTP does not define share one
// label, because a server can send any number.
func codeLabel(code int) string {
	switch {
	case code == 0:
		return "error"
	case http.StatusText(code) == "":
		return "other"
	}
	return strconv.Itoa(code)
}

// The following methods count the sink's events.
func (m *Metrics) committed(c sink.Commit) {
	m.commit.Set(float64(c.CreatedAt.UnixMilli()) / 1e3)
	for _, s := range c.Shards {
		m.shards.WithLabelValues(s.Format.String(), s.Kind.String()).Inc()
		m.bytes.WithLabelValues(s.Format.String(), s.Kind.String()).Add(float64(s.Bytes))
	}
}

func (m *Metrics) sealed(t sink.SealTimes) {
	m.seal.WithLabelValues("encode").Observe(t.Encode.Seconds())
	m.seal.WithLabelValues("sync").Observe(t.Sync.Seconds())
	m.seal.WithLabelValues("check").Observe(t.Check.Seconds())
	m.seal.WithLabelValues("commit").Observe(t.Commit.Seconds())
}

func (m *Metrics) synced(took time.Duration, _ int, _ int64) { m.fsync.Observe(took.Seconds()) }

// Watch returns the request observer for an endpoint's client.
func (m *Metrics) Watch(endpoint string) func(context.Context, string, string) (context.Context, func(letta.Exchange)) {
	return func(ctx context.Context, _, _ string) (context.Context, func(letta.Exchange)) {
		return ctx, func(e letta.Exchange) {
			m.requests.WithLabelValues(endpoint, e.Method, codeLabel(e.Code)).Inc()
			if e.Op != "send" {
				m.exchange.WithLabelValues(endpoint, e.Method).Observe(e.Duration.Seconds())
			}
		}
	}
}

// openGroups contains each group of which this process has finished some samples but not all. There
// are only a few, because the collector finishes open groups first.
type openGroups struct {
	mu     sync.Mutex
	groups map[string]*openGroup
}

type openGroup struct {
	left, scored, lost int
	reward             float64
	differ             bool
}

// add counts a finished sample, and returns its group. The result ended is true if the sample was
// the last of its group.
func (o *openGroups) add(s *tokenize.Sample, kept bool) (g *openGroup, ended bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	g = o.groups[s.GroupID]
	if g == nil {
		g = &openGroup{left: int(s.GroupSize)}
		o.groups[s.GroupID] = g
	}
	g.left--
	if !kept {
		g.lost++
	}
	if s.Reward != nil && kept {
		g.differ = g.differ || g.scored > 0 && *s.Reward != g.reward
		g.reward = *s.Reward
		g.scored++
	}
	if g.left > 0 {
		return g, false
	}
	delete(o.groups, s.GroupID)
	return g, true
}

func (g *openGroup) outcome() string {
	if g.lost > 0 {
		return groupPartial
	}
	return groupComplete
}

func (g *openGroup) reason() string {
	if g.scored > 1 && !g.differ {
		return reasonZeroVariance
	}
	return reasonOther
}
