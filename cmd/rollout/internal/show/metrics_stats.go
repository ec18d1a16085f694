package show

import (
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/pace"
	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

// A snapshot is a Prometheus collector whose values are read on each scrape.
type snapshot func(out sender)

// Describe sends nothing, because the set of metrics depends on the run.
func (snapshot) Describe(chan<- *prometheus.Desc) {}

// Collect sends the metrics.
func (f snapshot) Collect(ch chan<- prometheus.Metric) { f(ch) }

type sender chan<- prometheus.Metric

// gauge returns a function that sends one value of a gauge.
func (out sender) gauge(name, help string, labels ...string) func(v float64, labels ...string) {
	return out.metric(prometheus.GaugeValue, name, help, labels)
}

// counter returns a function that sends one value of a counter.
func (out sender) counter(name, help string, labels ...string) func(v float64, labels ...string) {
	return out.metric(prometheus.CounterValue, name, help, labels)
}

func (out sender) metric(kind prometheus.ValueType, name, help string, labels []string) func(v float64, labels ...string) {
	desc := prometheus.NewDesc(name, help, labels, nil)
	return func(v float64, labels ...string) { out <- prometheus.MustNewConstMetric(desc, kind, v, labels...) }
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// vitals sends the metrics of a run. The parameter prompted is the number of prompt tokens.
func (out sender) vitals(v Vitals, prompted int64) {
	out.collector(v.Collector(), prompted)
	out.sink(v.Sink())
	if v.Taps != nil {
		out.tapped(v.Taps())
	}
	if free, ok := diskFree(v.Dir); ok {
		out.gauge("rollout_disk_free_bytes", "Free space on the file system of the run folder.")(float64(free))
	}
}

func (out sender) collector(s collector.Stats, prompted int64) {
	out.gauge("rollout_samples_planned", "Samples that this run will collect.")(float64(s.Planned))
	out.gauge("rollout_samples_remaining", "Samples that are not yet committed, filtered, failed or skipped.")(float64(s.Remaining))
	now := out.counter("rollout_samples_total", "Samples finished by this process, by outcome.", "outcome")
	before := out.gauge("rollout_samples_earlier", "Samples finished by earlier processes, by outcome.", "outcome")
	samples := func(outcome string, all, earlier int) {
		now(float64(all-earlier), outcome)
		before(float64(earlier), outcome)
	}
	samples(outcomeCommitted, s.Committed, s.Earlier.Committed)
	samples(outcomeFiltered, s.Filtered, s.Earlier.Filtered)
	samples(outcomeFailed, s.Failed, s.Earlier.Failed)
	samples(outcomeSkipped, s.Skipped, s.Earlier.Skipped)
	tokens := out.counter("rollout_tokens_total", "Tokens by kind: prompt (the whole prompt of every call), completion (sampled), trainable.", "kind")
	tokens(float64(prompted), "prompt")
	tokens(float64(s.Sampled), "completion")
	tokens(float64(s.Trained), "trainable")
	out.counter("rollout_rows_total", "Rows accepted by the sink.")(float64(s.Rows))
	out.counter("rollout_agents_left_total", "Agents that could not be deleted from a server.")(float64(s.CloseFailures))
	out.counter("rollout_rows_downgraded_total", "Rows with a lower grade because their replies were lost.")(float64(s.Downgraded))
	versions := out.counter("rollout_version_tokens_total", "Sampled tokens in rows, by source of their policy version: trace, tap, url, flag, set-version, unknown.", "source")
	for source, n := range versionCounts(s.Yield) {
		versions(float64(n), source)
	}
	remade := out.counter("rollout_remade_total", "Rollouts lost to infrastructure failures and collected again, by reason.", "reason")
	remadeTime := out.counter("rollout_remade_seconds_total", "Time spent on lost rollouts, by reason. Rollouts with an unknown duration are not counted.", "reason")
	for _, reason := range collector.RemadeReasons() {
		remade(float64(s.Remade[reason].N), reason)
		remadeTime(s.Remade[reason].Time.Seconds(), reason)
	}
	inFlight := out.gauge("rollout_samples_in_flight", "Samples in flight at an endpoint, by stage.", "endpoint", "stage")
	limit := out.gauge("rollout_concurrency_limit", "Concurrency limit of an endpoint, in samples.", "endpoint")
	ceiling := out.gauge("rollout_concurrency_ceiling", "Maximum concurrency limit of an endpoint, in samples.", "endpoint")
	down := out.gauge("rollout_breaker_open", "1 if the circuit breaker considers the server down.", "endpoint")
	for _, e := range s.Endpoints {
		for _, stage := range collector.Stages() {
			inFlight(float64(e.Stages[stage]), e.Name, stage.String())
		}
		limit(float64(e.Limit), e.Name)
		ceiling(float64(e.Max), e.Name)
		down(oneIf(e.Down || e.Lost), e.Name)
	}
	out.pace(s.Pace)
	oldest, idle := 0.0, 0.0
	if s.Oldest != nil {
		oldest = time.Since(s.Oldest.Started).Seconds()
	}
	if s.LongestInStage != nil {
		idle = time.Since(s.LongestInStage.Since).Seconds()
	}
	out.gauge("rollout_oldest_in_flight_seconds", "Age of the oldest sample in flight, or 0 if there is none.")(oldest)
	out.gauge("rollout_sample_idle_seconds_max", "Longest time that a sample in flight has been in its current stage, or 0 if no sample is in flight.")(idle)
}

func (out sender) sink(s sink.Stats) {
	out.gauge("rollout_wal_bytes", "Size of the write-ahead log.")(float64(s.WALBytes))
	out.gauge("rollout_wal_records", "Samples in the write-ahead log but not yet in a shard.")(float64(s.Pending))
	merges := out.counter("rollout_merges_total", "Merges of small commits, by outcome: merged, or failed (will be retried).", "outcome")
	merges(float64(s.Merges), "merged")
	merges(float64(s.MergeErrors), "failed")
}

// lagBounds are the bucket bounds of the lag histogram. Larger lags count in the +Inf bucket.
var lagBounds = []int{0, 1, 2, 3, 4, 6, 8, 12, 16, 24, pace.LagMost - 1}

// pace sends the group metrics. It sends nothing if the run does not commit whole groups.
func (out sender) pace(s *pace.Stats) {
	if s == nil {
		return
	}
	out.gauge("rollout_groups_begun", "Groups with at least one started sample.")(float64(s.Begun))
	whole := out.gauge("rollout_groups_whole", "Whole groups, by outcome: informative (delivered to the reader), filtered (keep=false), failed (without a row).", "outcome")
	whole(float64(s.Informative), "informative")
	whole(float64(s.Filtered), outcomeFiltered)
	whole(float64(s.Failed), outcomeFailed)
	out.gauge("rollout_groups_ahead", "Groups that have started but are not yet acknowledged, filtered or failed.")(float64(s.Ahead))
	out.gauge("rollout_paused", "1 while rollout ctl pause stops new samples.")(oneIf(s.Paused))
	if s.Version >= 0 {
		out.gauge("rollout_policy_version", "The latest known policy version.")(float64(s.Version))
	}
	// A lag above LagMost was counted as LagMost, so the sum is a lower bound.
	var count uint64
	sum, at := 0.0, 0
	buckets := map[float64]uint64{}
	for lag, n := range s.Lags {
		count += uint64(max(0, n))
		sum += float64(lag) * float64(n)
		if at < len(lagBounds) && lag == lagBounds[at] {
			buckets[float64(lag)] = count
			at++
		}
	}
	desc := prometheus.NewDesc("rollout_policy_lag_versions", "Policy lag of the groups completed by this process, in policy versions.", nil, nil)
	out <- prometheus.MustNewConstHistogram(desc, count, sum, buckets)
}

// tapped sends the metrics about the calls read from the taps' spools. The metrics of the tap
// itself are in metrics_tap.go.
func (out sender) tapped(s tap.IndexStats) {
	out.counter("rollout_tapped_calls_total", "Calls read from the spools of the taps.")(float64(s.Calls))
	out.counter("rollout_tapped_joined_total", "Sample calls found in the spools.")(float64(s.Claimed))
	refused := out.counter("rollout_tapped_refused_total", "Sample calls not found in the spools, by reason.", "reason")
	for _, r := range tap.Refusals() {
		refused(float64(s.Refused[r.Word()]), r.Word())
	}
	unshown := out.counter("rollout_tapped_unshown_total", "Sample calls missing from the server's answers, by kind: retry, failed, cut, summary.", "kind")
	for kind := range (tokenize.Unshown{}).Each() {
		unshown(float64(s.Unshown[kind]), kind)
	}
	left := out.gauge("rollout_tapped_unclaimed", "Calls not yet claimed by a sample, by kind: retry (same prompt as a claimed call), other.", "kind")
	left(float64(s.Retries), "retry")
	left(float64(s.Others), "other")
	out.counter("rollout_tapped_unread_total", "Calls without token ids, such as summaries.")(float64(s.Unread))
	out.counter("rollout_tapped_broken_total", "Calls that got an error or an incomplete response from an engine.")(float64(s.Broken))
	out.counter("rollout_tapped_evicted_total", "Calls dropped from memory before a sample claimed them.")(float64(s.Evicted))
	out.gauge("rollout_tapped_index_bytes", "Memory used by the calls in the index.")(float64(s.Bytes))
	lost := out.counter("rollout_tapped_missing_total", "Missing spool data, by reason: damaged (unreadable places), torn (incomplete segments of killed taps), dropped (calls that a tap did not store), lost (calls in damaged places), orphans (calls that refer to a lost call), removed (segments deleted before they were read).", "reason")
	for reason, n := range missing(&s.Read) {
		lost(float64(n), reason)
	}
	out.counter("rollout_tapped_read_errors_total", "Failed reads of a spool. Each one is retried.")(float64(s.Read.Errors))
}

// missing returns the counts of missing spool data by reason.
func missing(s *tap.ReaderStats) map[string]int64 {
	return map[string]int64{
		"damaged": s.Damaged, "torn": s.Torn, "dropped": s.Dropped, "lost": s.Lost, "orphans": s.Orphans, "removed": s.Removed,
	}
}

// diskFree returns how many bytes an unprivileged user can write to dir's file system. ok is false
// if the number is unknown.
func diskFree(dir string) (free uint64, ok bool) {
	var fs syscall.Statfs_t
	if dir == "" || syscall.Statfs(dir, &fs) != nil {
		return 0, false
	}
	return fs.Bavail * uint64(fs.Bsize), true //nolint:gosec // the size of a block is limited
}
