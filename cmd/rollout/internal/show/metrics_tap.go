package show

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/collector/tap/continuity"
	"github.com/rollout-rl/rollout/collector/tap/proxy"
)

// NewTapMetrics returns the metrics of a tap's proxy and spool. If prompts is not nil, the metrics
// also cover the tap's continuity. Each scrape calls the three functions.
func NewTapMetrics(calls func() proxy.Stats, spool func() tap.SpoolStats, prompts func() continuity.Stats) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), snapshot(func(out sender) {
		s := calls()
		out.proxy(s)
		if prompts != nil {
			out.continuity(s, prompts())
		}
		out.spool(spool())
	}))
	return r
}

func (out sender) proxy(s proxy.Stats) {
	unread := out.counter("rollout_tap_unread_total", "Request and answer bodies, or parts of them, that the tap forwarded but could not parse, by reason.", "reason")
	for reason, n := range s.Unread {
		unread(float64(n), reason)
	}
	answers := out.counter("rollout_tap_answers_total", "Answers from engines, by status class.", "status")
	for i, n := range s.Answers {
		if i > 0 {
			answers(float64(n), string(rune('0'+i))+"xx")
		}
	}
	sessions := out.counter("rollout_tap_sessions_total", "Sessions that programs began or ended over HTTP, by step: begun or ended.", "step")
	sessions(float64(s.Sessions.Begun), "begun")
	sessions(float64(s.Sessions.Ended), "ended")
	recorded := out.counter("rollout_tap_session_calls_total", "Finished calls of sessions, by outcome: kept (written to the file of the session) or dropped.", "outcome")
	recorded(float64(s.Sessions.Kept), "kept")
	recorded(float64(s.Sessions.Dropped), "dropped")
	out.counter("rollout_tap_unreachable_total", "Requests that no engine answered.")(float64(s.Unreachable))
	out.counter("rollout_tap_refused_total", "Requests refused during shutdown.")(float64(s.Refused))
	out.counter("rollout_tap_sent_again_total", "Requests sent again because the engine had closed the connection.")(float64(s.Stale))
	out.counter("rollout_tap_panics_total", "Panics from which the tap recovered.")(float64(s.Panics))
	out.gauge("rollout_tap_open", "Requests in progress at all engines.")(float64(s.Open))
	out.gauge("rollout_tap_body_bytes", "Size of the request bodies in memory.")(float64(s.BodyBytes))
	out.histogram("rollout_tap_engine_seconds", "Duration of engine calls.", s.Time)
	up := out.gauge("rollout_tap_engine_up", "1 if the engine is up.", "engine")
	busy := out.gauge("rollout_tap_engine_busy", "Requests in progress at an engine.", "engine")
	sent := out.counter("rollout_tap_engine_requests_total", "Requests sent to an engine.", "engine")
	errors := out.counter("rollout_tap_engine_errors_total", "Requests that an engine did not answer.", "engine")
	for _, e := range s.Engines {
		up(oneIf(e.Up), e.Engine)
		busy(float64(e.Busy), e.Engine)
		sent(float64(e.Calls), e.Engine)
		errors(float64(e.Errors), e.Engine)
	}
}

func (out sender) continuity(s proxy.Stats, c continuity.Stats) {
	prompts := out.counter("rollout_tap_continuity_total", "Prompts, by decision of --continuity: same (nothing to splice), spliced, or refused (left unchanged, because no splice could be proven).", "outcome", "reason")
	for reason, n := range c.Prompts {
		prompts(float64(n), reason.Outcome(), reason.String())
	}
	out.gauge("rollout_tap_continuity_bytes", "Approximate memory that --continuity uses for earlier calls.")(float64(c.Bytes))
	out.counter("rollout_tap_continued_total", "Calls whose prompt contains the model's own earlier tokens (--continuity).")(float64(s.Continued))
	refused := out.counter("rollout_tap_splices_refused_total", "Spliced prompts that an engine refused, by status. The tap then sent the server's original prompt.", "status")
	for status, n := range s.SplicesRefused {
		refused(float64(n), strconv.Itoa(status))
	}
	out.histogram("rollout_tap_continuity_seconds", "Time that --continuity takes per prompt.", s.Continuity)
}

func (out sender) spool(s tap.SpoolStats) {
	calls := out.counter("rollout_tap_calls_total", "Finished calls outside sessions, by outcome: kept (written to the spool) or dropped. Calls not yet written count as neither.", "outcome")
	calls(float64(s.Written), "kept")
	calls(float64(s.Full+s.TooLong+s.Lost), "dropped")
	out.gauge("rollout_tap_spool_bytes", "Size of the spool on disk.")(float64(s.SegmentBytes))
	oldest := 0.0
	if !s.Oldest.IsZero() {
		oldest = float64(s.Oldest.UnixMilli()) / 1000
	}
	out.gauge("rollout_tap_spool_oldest_timestamp_seconds", "Start time of the oldest segment of the spool, or 0 if there is none.")(oldest)
	out.counter("rollout_tap_spool_removed_total", "Segments removed because the spool was too large or the segments were too old.")(float64(s.Removed))
	out.gauge("rollout_tap_spool_queued_bytes", "Approximate size of the calls that have not yet been written to the spool.")(float64(s.QueuedBytes))
	out.counter("rollout_tap_spool_written_bytes_total", "Bytes written to the spool.")(float64(s.WrittenBytes))
	dropped := out.counter("rollout_tap_spool_dropped_total", "Calls dropped by the spool, by reason.", "reason")
	dropped(float64(s.Full), "full")
	dropped(float64(s.TooLong), "too_long")
	dropped(float64(s.Lost), "lost")
	out.counter("rollout_tap_spool_errors_total", "Failed writes and syncs of the spool.")(float64(s.Errors))
}

func (out sender) histogram(name, help string, h proxy.Histogram) {
	buckets, n := make(map[float64]uint64, len(h.Bounds)), uint64(0)
	for i, bound := range h.Bounds {
		n += uint64(h.Counts[i])
		buckets[bound] = n
	}
	n += uint64(h.Counts[len(h.Bounds)])
	out <- prometheus.MustNewConstHistogram(prometheus.NewDesc(name, help, nil, nil), n, h.Sum, buckets)
}
