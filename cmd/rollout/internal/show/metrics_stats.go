package show

import (
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

// snapshots converts the statistics of the collector and the sink to metrics on each scrape.
type snapshots struct {
	Vitals
	prompted *atomic.Int64 // tokens, by the server's count
}

var (
	descPlanned    = prometheus.NewDesc("rollout_samples_planned", "Samples that this run will collect.", nil, nil)
	descSamples    = prometheus.NewDesc("rollout_samples_total", "Samples by outcome, in this process.", []string{"outcome"}, nil)
	descEarlier    = prometheus.NewDesc("rollout_samples_earlier", "Samples finished before this process, by outcome.", []string{"outcome"}, nil)
	descRemaining  = prometheus.NewDesc("rollout_samples_remaining", "Samples that are neither committed, failed nor skipped.", nil, nil)
	descInFlight   = prometheus.NewDesc("rollout_samples_in_flight", "Samples in flight at an endpoint, by stage.", []string{"endpoint", "stage"}, nil)
	descLimit      = prometheus.NewDesc("rollout_concurrency_limit", "Concurrency limit of an endpoint, in samples.", []string{"endpoint"}, nil)
	descCeiling    = prometheus.NewDesc("rollout_concurrency_ceiling", "Ceiling of the concurrency limit of an endpoint, in samples.", []string{"endpoint"}, nil)
	descDown       = prometheus.NewDesc("rollout_breaker_open", "1 if the circuit breaker considers the server down.", []string{"endpoint"}, nil)
	descTokens     = prometheus.NewDesc("rollout_tokens_total", "Tokens by kind: prompt (the whole prompt of every call), completion (sampled), trainable.", []string{"kind"}, nil)
	descRows       = prometheus.NewDesc("rollout_rows_total", "Rows accepted by the sink.", nil, nil)
	descOldest     = prometheus.NewDesc("rollout_oldest_in_flight_seconds", "Age of the oldest sample in flight; 0: none.", nil, nil)
	descIdle       = prometheus.NewDesc("rollout_sample_idle_seconds_max", "Longest time without activity of a sample in flight; 0: none.", nil, nil)
	descLeft       = prometheus.NewDesc("rollout_agents_left_total", "Agents that could not be deleted from a server.", nil, nil)
	descRemade     = prometheus.NewDesc("rollout_remade_total", "Rollouts lost by the infrastructure and collected again, by reason.", []string{"reason"}, nil)
	descRemadeTime = prometheus.NewDesc("rollout_remade_seconds_total", "Time spent on lost rollouts, if known, by reason.", []string{"reason"}, nil)
	descLesser     = prometheus.NewDesc("rollout_rows_downgraded_total", "Rows with a lower grade because their reply was lost.", nil, nil)
	descVersions   = prometheus.NewDesc("rollout_version_tokens_total", "Sampled tokens of rows, by source of their policy version: trace, url, flag, set-version, unknown.", []string{"source"}, nil)
	descWAL        = prometheus.NewDesc("rollout_wal_bytes", "Size of the write-ahead log.", nil, nil)
	descRecords    = prometheus.NewDesc("rollout_wal_records", "Samples in the write-ahead log and not yet in a shard.", nil, nil)
	descMerges     = prometheus.NewDesc("rollout_merges_total", "Merges of small commits, by outcome: merged, or failed (will be retried).", []string{"outcome"}, nil)
	descDisk       = prometheus.NewDesc("rollout_disk_free_bytes", "Free space on the file system of the run.", nil, nil)
)

// Describe sends the descriptions of all metrics that [snapshots.Collect] can send.
func (snapshots) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descPlanned, descSamples, descEarlier, descRemaining, descInFlight, descLimit, descCeiling, descDown, descTokens, descRows,
		descOldest, descIdle, descLeft, descRemade, descRemadeTime, descLesser, descVersions, descWAL, descRecords, descMerges, descDisk,
	} {
		ch <- d
	}
	for _, d := range slices.Concat(descsPace, descsTapped) {
		ch <- d
	}
}

// Collect sends the metrics of one snapshot.
func (f snapshots) Collect(ch chan<- prometheus.Metric) {
	out := sender(ch)
	out.count(descTokens, f.prompted.Load(), "prompt")
	out.collector(f.Collector())
	out.sink(f.Sink())
	if f.Taps != nil {
		out.tapped(f.Taps())
	}
	if free, ok := diskFree(f.Dir); ok {
		out.gauge(descDisk, float64(free))
	}
}

type sender chan<- prometheus.Metric

func (out sender) gauge(d *prometheus.Desc, v float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (out sender) count(d *prometheus.Desc, v int64, labels ...string) {
	out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func (out sender) seconds(d *prometheus.Desc, v time.Duration, labels ...string) {
	out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v.Seconds(), labels...)
}

func (out sender) collector(s collector.Stats) {
	out.gauge(descPlanned, float64(s.Planned))
	out.gauge(descRemaining, float64(s.Remaining))
	e := s.Earlier
	out.count(descSamples, int64(s.Committed-e.Committed), outcomeCommitted)
	out.count(descSamples, int64(s.Filtered-e.Filtered), outcomeFiltered)
	out.count(descSamples, int64(s.Failed-e.Failed), outcomeFailed)
	out.count(descSamples, int64(s.Skipped-e.Skipped), outcomeSkipped)
	out.gauge(descEarlier, float64(e.Committed), outcomeCommitted)
	out.gauge(descEarlier, float64(e.Filtered), outcomeFiltered)
	out.gauge(descEarlier, float64(e.Failed), outcomeFailed)
	out.gauge(descEarlier, float64(e.Skipped), outcomeSkipped)
	out.count(descTokens, s.Sampled, "completion")
	out.count(descTokens, s.Trained, "trainable")
	out.count(descRows, int64(s.Rows))
	out.count(descLeft, int64(s.CloseFailures))
	out.count(descLesser, int64(s.Downgraded))
	out.count(descVersions, s.VersionTrace, tokenize.VersionTrace.String())
	out.count(descVersions, s.VersionTap, tokenize.VersionTap.String())
	out.count(descVersions, s.VersionURL, tokenize.VersionURL.String())
	out.count(descVersions, s.VersionFlag, tokenize.VersionFlag.String())
	out.count(descVersions, s.VersionSet, tokenize.VersionSet.String())
	out.count(descVersions, s.VersionNone, versionUnknown)
	for _, reason := range collector.RemadeReasons() {
		r := s.Remade[reason]
		out.count(descRemade, int64(r.N), reason)
		out.seconds(descRemadeTime, r.Time, reason)
	}
	for _, e := range s.Endpoints {
		for _, stage := range collector.Stages() {
			out.gauge(descInFlight, float64(e.Stages[stage]), e.Name, stage.String())
		}
		out.gauge(descLimit, float64(e.Limit), e.Name)
		out.gauge(descCeiling, float64(e.Max), e.Name)
		down := 0.0
		if e.Down || e.Lost {
			down = 1
		}
		out.gauge(descDown, down, e.Name)
	}
	oldest, idle := 0.0, 0.0
	if s.Oldest != nil {
		oldest = time.Since(s.Oldest.Started).Seconds()
	}
	if s.LongestInStage != nil {
		idle = time.Since(s.LongestInStage.Since).Seconds()
	}
	out.pace(s.Pace)
	out.gauge(descOldest, oldest)
	out.gauge(descIdle, idle)
}

func (out sender) sink(s sink.Stats) {
	out.gauge(descWAL, float64(s.WALBytes))
	out.gauge(descRecords, float64(s.Pending))
	out.count(descMerges, s.Merges, "merged")
	out.count(descMerges, s.MergeErrors, "failed")
}

// diskFree returns how many bytes an unprivileged user can write on dir's disk. ok reports whether
// the number is known.
func diskFree(dir string) (free uint64, ok bool) {
	var fs syscall.Statfs_t
	if dir == "" || syscall.Statfs(dir, &fs) != nil {
		return 0, false
	}
	return fs.Bavail * uint64(fs.Bsize), true //nolint:gosec // a block has a size
}
