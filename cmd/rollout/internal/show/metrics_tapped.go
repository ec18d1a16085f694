package show

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/tokenize"
)

// Metrics of a collection that reads taps' spools. A tap's own metrics are in metrics_tap.go.
var (
	descTappedCalls   = prometheus.NewDesc("rollout_tapped_calls_total", "Calls read from the spools of the taps.", nil, nil)
	descTappedJoined  = prometheus.NewDesc("rollout_tapped_joined_total", "Calls of samples that were found in the spools.", nil, nil)
	descTappedRefused = prometheus.NewDesc("rollout_tapped_refused_total", "Calls of samples that were not found in the spools, by reason.", []string{"reason"}, nil)
	descTappedUnshown = prometheus.NewDesc("rollout_tapped_unshown_total", "Calls of samples that are in no answer of the server, by kind: retry, failed, cut, summary.", []string{"kind"}, nil)
	descTappedLeft    = prometheus.NewDesc("rollout_tapped_unclaimed", "Calls without a sample so far, by kind: retry (same prompt as a call of a sample), other.", []string{"kind"}, nil)
	descTappedUnread  = prometheus.NewDesc("rollout_tapped_unread_total", "Calls without token ids, such as summaries.", nil, nil)
	descTappedBroken  = prometheus.NewDesc("rollout_tapped_broken_total", "Calls that an engine answered with an error or an incomplete answer.", nil, nil)
	descTappedEvicted = prometheus.NewDesc("rollout_tapped_evicted_total", "Calls dropped from memory before a sample claimed them.", nil, nil)
	descTappedBytes   = prometheus.NewDesc("rollout_tapped_index_bytes", "Memory of the calls in the index.", nil, nil)
	descTappedMissing = prometheus.NewDesc("rollout_tapped_missing_total", "Missing spool data, by reason: damaged places, torn segments of killed taps, calls dropped by a tap, calls lost in damaged places, orphans that begin like a lost call, segments removed before they were read.", []string{"reason"}, nil)
	descTappedErrors  = prometheus.NewDesc("rollout_tapped_read_errors_total", "Failed reads of a spool, which are retried.", nil, nil)
)

// descsTapped are the metrics of runs that read taps.
var descsTapped = []*prometheus.Desc{
	descTappedCalls, descTappedJoined, descTappedRefused, descTappedUnshown, descTappedLeft, descTappedUnread, descTappedBroken, descTappedEvicted,
	descTappedBytes, descTappedMissing, descTappedErrors,
}

func (out sender) tapped(s tap.IndexStats) {
	out.count(descTappedCalls, s.Calls)
	out.count(descTappedJoined, s.Claimed)
	for _, r := range tap.Refusals() {
		out.count(descTappedRefused, s.Refused[r.Word()], r.Word())
	}
	for kind := range (tokenize.Unshown{}).Each() {
		out.count(descTappedUnshown, s.Unshown[kind], kind)
	}
	out.gauge(descTappedLeft, float64(s.Retries), "retry")
	out.gauge(descTappedLeft, float64(s.Others), "other")
	out.count(descTappedUnread, s.Unread)
	out.count(descTappedBroken, s.Broken)
	out.count(descTappedEvicted, s.Evicted)
	out.gauge(descTappedBytes, float64(s.Bytes))
	for _, m := range missing(&s.Read) {
		out.count(descTappedMissing, m.n, m.reason)
	}
	out.count(descTappedErrors, s.Read.Errors)
}

// A missed counts one kind of missing spool data.
type missed struct {
	reason string
	n      int64
}

func missing(s *tap.ReaderStats) []missed {
	return []missed{
		{"damaged", s.Damaged}, {"torn", s.Torn}, {"dropped", s.Dropped}, {"lost", s.Lost}, {"orphans", s.Orphans}, {"removed", s.Removed},
	}
}
