package show

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/collector/tap/continuity"
	"github.com/rollout-rl/rollout/collector/tap/proxy"
)

// NewTapMetrics returns the metrics of a tap: its proxy, its spool and, if prompts is not nil, its
// continuity. Each scrape calls the functions.
func NewTapMetrics(calls func() proxy.Stats, spool func() tap.SpoolStats, prompts func() continuity.Stats) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), tapSnapshots{calls, spool, prompts})
	return r
}

type tapSnapshots struct {
	calls   func() proxy.Stats
	spool   func() tap.SpoolStats
	prompts func() continuity.Stats
}

var (
	descTapCalls       = prometheus.NewDesc("rollout_tap_calls_total", "Finished calls, by outcome: kept (written to the spool) or dropped. Calls not yet written count in neither.", []string{"outcome"}, nil)
	descTapUnread      = prometheus.NewDesc("rollout_tap_unread_total", "Bodies, or parts of them, that passed but could not be parsed, by reason.", []string{"reason"}, nil)
	descTapAnswers     = prometheus.NewDesc("rollout_tap_answers_total", "Answers of engines, by status class.", []string{"status"}, nil)
	descTapUnreachable = prometheus.NewDesc("rollout_tap_unreachable_total", "Requests that no engine answered.", nil, nil)
	descTapRefused     = prometheus.NewDesc("rollout_tap_refused_total", "Requests refused during shutdown.", nil, nil)
	descTapStale       = prometheus.NewDesc("rollout_tap_sent_again_total", "Requests sent again because the engine had closed the connection.", nil, nil)
	descTapPanics      = prometheus.NewDesc("rollout_tap_panics_total", "Panics of the tap. They affected no request.", nil, nil)
	descTapOpen        = prometheus.NewDesc("rollout_tap_open", "Requests in progress at all engines.", nil, nil)
	descTapBodies      = prometheus.NewDesc("rollout_tap_body_bytes", "Request bodies in memory.", nil, nil)
	descTapTime        = prometheus.NewDesc("rollout_tap_engine_seconds", "Duration of calls at the engines.", nil, nil)
	descTapUp          = prometheus.NewDesc("rollout_tap_engine_up", "1 if the engine is up.", []string{"engine"}, nil)
	descTapBusy        = prometheus.NewDesc("rollout_tap_engine_busy", "Requests in progress at an engine.", []string{"engine"}, nil)
	descTapGiven       = prometheus.NewDesc("rollout_tap_engine_requests_total", "Requests sent to an engine.", []string{"engine"}, nil)
	descTapErrors      = prometheus.NewDesc("rollout_tap_engine_errors_total", "Requests without an answer from the engine.", []string{"engine"}, nil)

	descTapContinued = prometheus.NewDesc("rollout_tap_continued_total", "Calls whose prompt contains the model's own earlier tokens (--continuity).", nil, nil)
	descTapSplices   = prometheus.NewDesc("rollout_tap_splices_refused_total", "Spliced prompts that an engine refused, by status. The tap then sent the server's own prompt.", []string{"status"}, nil)
	descTapPrompts   = prometheus.NewDesc("rollout_tap_continuity_total", "Prompts, by decision of --continuity: same (nothing to splice), spliced, or refused (unchanged, because a splice is unproven).", []string{"outcome", "reason"}, nil)
	descTapDeciding  = prometheus.NewDesc("rollout_tap_continuity_seconds", "Duration of the decision of --continuity.", nil, nil)
	descTapTable     = prometheus.NewDesc("rollout_tap_continuity_bytes", "Approximate memory of the earlier calls for --continuity.", nil, nil)

	descTapSpool    = prometheus.NewDesc("rollout_tap_spool_bytes", "Size of the spool on disk.", nil, nil)
	descTapOldest   = prometheus.NewDesc("rollout_tap_spool_oldest_timestamp_seconds", "Start time of the oldest segment of the spool; 0: none.", nil, nil)
	descTapRemoved  = prometheus.NewDesc("rollout_tap_spool_removed_total", "Segments of the spool that were removed because of its size or their age.", nil, nil)
	descTapQueued   = prometheus.NewDesc("rollout_tap_spool_queued_bytes", "Approximate size of calls that are not written yet.", nil, nil)
	descTapWritten  = prometheus.NewDesc("rollout_tap_spool_written_bytes_total", "Bytes written to the spool.", nil, nil)
	descTapLost     = prometheus.NewDesc("rollout_tap_spool_dropped_total", "Calls dropped by the spool, by reason.", []string{"reason"}, nil)
	descTapFailures = prometheus.NewDesc("rollout_tap_spool_errors_total", "Failed writes and syncs of the spool.", nil, nil)
)

// Describe sends nothing, because the set of metrics depends on the tap.
func (tapSnapshots) Describe(chan<- *prometheus.Desc) {}

// Collect sends the metrics of one snapshot.
func (t tapSnapshots) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	s := t.calls()
	for reason, n := range s.Unread {
		counter(descTapUnread, n, reason)
	}
	for i, n := range s.Answers {
		if i > 0 {
			counter(descTapAnswers, n, string(rune('0'+i))+"xx")
		}
	}
	counter(descTapUnreachable, s.Unreachable)
	counter(descTapRefused, s.Refused)
	counter(descTapStale, s.Stale)
	counter(descTapPanics, s.Panics)
	gauge(descTapOpen, float64(s.Open))
	gauge(descTapBodies, float64(s.BodyBytes))
	histogram(ch, descTapTime, s.Time)
	for _, e := range s.Engines {
		up := 0.0
		if e.Up {
			up = 1
		}
		gauge(descTapUp, up, e.Engine)
		gauge(descTapBusy, float64(e.Busy), e.Engine)
		counter(descTapGiven, e.Calls, e.Engine)
		counter(descTapErrors, e.Errors, e.Engine)
	}
	if t.prompts != nil {
		c := t.prompts()
		for reason, n := range c.Prompts {
			counter(descTapPrompts, n, reason.Outcome(), reason.String())
		}
		gauge(descTapTable, float64(c.Bytes))
		counter(descTapContinued, s.Continued)
		for status, n := range s.SplicesRefused {
			counter(descTapSplices, n, strconv.Itoa(status))
		}
		histogram(ch, descTapDeciding, s.Continuity)
	}
	k := t.spool()
	counter(descTapCalls, k.Written, "kept")
	counter(descTapCalls, k.Full+k.TooLong+k.Lost, "dropped")
	gauge(descTapSpool, float64(k.SegmentBytes))
	oldest := 0.0
	if !k.Oldest.IsZero() {
		oldest = float64(k.Oldest.UnixMilli()) / 1000
	}
	gauge(descTapOldest, oldest)
	counter(descTapRemoved, k.Removed)
	gauge(descTapQueued, float64(k.QueuedBytes))
	counter(descTapWritten, k.WrittenBytes)
	counter(descTapLost, k.Full, "full")
	counter(descTapLost, k.TooLong, "too_long")
	counter(descTapLost, k.Lost, "lost")
	counter(descTapFailures, k.Errors)
}

func histogram(ch chan<- prometheus.Metric, d *prometheus.Desc, h proxy.Histogram) {
	buckets, n := make(map[float64]uint64, len(h.Bounds)), uint64(0)
	for i, bound := range h.Bounds {
		n += uint64(h.Counts[i])
		buckets[bound] = n
	}
	n += uint64(h.Counts[len(h.Bounds)])
	ch <- prometheus.MustNewConstHistogram(d, n, h.Sum, buckets)
}
