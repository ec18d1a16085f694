package show

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollout-rl/rollout/collector/pace"
)

var (
	descBegun   = prometheus.NewDesc("rollout_groups_begun", "Groups with at least one started sample.", nil, nil)
	descWhole   = prometheus.NewDesc("rollout_groups_whole", "Whole groups, by outcome: informative (delivered to the reader), filtered (keep=false), failed (without a row).", []string{"outcome"}, nil)
	descAhead   = prometheus.NewDesc("rollout_groups_ahead", "Groups that are started but not acknowledged.", nil, nil)
	descPaused  = prometheus.NewDesc("rollout_paused", "1 while rollout ctl pause stops new samples.", nil, nil)
	descVersion = prometheus.NewDesc("rollout_policy_version", "The policy version that was set last.", nil, nil)
	descLag     = prometheus.NewDesc("rollout_policy_lag_versions", "Groups by age in policy versions at completion, in this process.", nil, nil)
)

// descsPace are the metrics of runs that commit whole groups.
var descsPace = []*prometheus.Desc{descBegun, descWhole, descAhead, descPaused, descVersion, descLag}

// lagBounds are the histogram's bucket bounds. Larger lags are in +Inf.
var lagBounds = []int{0, 1, 2, 3, 4, 6, 8, 12, 16, 24, pace.LagMost - 1}

// pace sends nothing if the run does not commit whole groups.
func (out sender) pace(s *pace.Stats) {
	if s == nil {
		return
	}
	out.gauge(descBegun, float64(s.Begun))
	out.gauge(descWhole, float64(s.Informative), "informative")
	out.gauge(descWhole, float64(s.Filtered), outcomeFiltered)
	out.gauge(descWhole, float64(s.Failed), outcomeFailed)
	out.gauge(descAhead, float64(s.Ahead))
	paused := 0.0
	if s.Paused {
		paused = 1
	}
	out.gauge(descPaused, paused)
	if s.Version >= 0 {
		out.gauge(descVersion, float64(s.Version))
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
	out <- prometheus.MustNewConstHistogram(descLag, count, sum, buckets)
}
