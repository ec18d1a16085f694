package stream

import (
	"math"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
)

// Values of keep_reason for marked rows. Rows with ReasonStale have keep=true. Rows with another
// reason have keep=false.
const (
	// ReasonStd means that the standard deviation of the group's rewards is below reward.min_std.
	ReasonStd = "reward_std"
	// ReasonNoReward means that fewer than two samples in the group have a reward, so there is
	// nothing to compare.
	ReasonNoReward = "reward_missing"
	// ReasonStale means that the rows were more than run.max_lag versions older than the current
	// version when the group became whole.
	ReasonStale = "stale"
)

// figures contains the fields of a group event, except the counts.
type figures struct {
	mean, std *float64 // mean and standard deviation of the rewards of samples with rows; nil if there are no rewards
	versions  *[2]int32
	stale     *bool // computed from the rows of a group that is reported again; otherwise nil
	late      bool  // a sample was cut at its task's deadline
}

// figuresOf summarizes a group. rewards is the number of samples that have both rows and a reward.
func figuresOf(g *sink.GroupFacts) (f figures, rewards int) {
	var sum, squares float64
	known := true
	var span [2]int32
	for _, s := range g.Samples {
		if s.Rows == 0 {
			f.late = f.late || collector.CutAtDeadline(s.Class, s.Error)
			continue
		}
		if s.Reward != nil {
			rewards++
			sum += *s.Reward
		}
		switch {
		case s.VersionMin == nil || s.VersionMax == nil:
			known = false
		case f.versions == nil:
			span = [2]int32{*s.VersionMin, *s.VersionMax}
			f.versions = &span
		default:
			span[0], span[1] = min(span[0], *s.VersionMin), max(span[1], *s.VersionMax)
		}
	}
	if !known {
		f.versions = nil
	}
	if rewards == 0 {
		return f, 0
	}
	mean := sum / float64(rewards)
	for _, s := range g.Samples {
		if s.Rows > 0 && s.Reward != nil {
			squares += (*s.Reward - mean) * (*s.Reward - mean)
		}
	}
	std := math.Sqrt(squares / float64(rewards))
	if finite(mean) && finite(std) {
		f.mean, f.std = &mean, &std
	}
	return f, rewards
}

func finite(x float64) bool { return !math.IsInf(x, 0) && !math.IsNaN(x) }

// Judge marks the samples of a whole group before its rows are written. If MinStd is set and the
// group has no training signal, Judge marks all its samples with keep=false. If MaxLag is set,
// Judge marks the stale samples of other groups. Stale samples have keep=true, and the trainer
// decides whether to use them. Judge is used as sink.Config.Judge.
func (t *Tracker) Judge(g *sink.GroupFacts) {
	f, rewards := figuresOf(g)
	if reason := f.reason(t.cfg.MinStd, rewards); reason != "" {
		keep, keys := false, make([]string, len(g.Samples))
		for i := range g.Samples {
			g.Samples[i].Keep, g.Samples[i].KeepReason = &keep, reason
			keys[i] = g.Samples[i].Key
		}
		if t.hooks.LeftOut != nil {
			t.hooks.LeftOut(keys...)
		}
	} else if t.cfg.MaxLag >= 0 {
		t.markStale(g)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.figures[g.ID] = f
}

// markStale marks stale samples. It marks no sample if the current version is unknown, and never
// marks a sample whose own versions are unknown.
func (t *Tracker) markStale(g *sink.GroupFacts) {
	now := int64(t.cfg.Pace.Version())
	if now < 0 {
		now = int64(t.cfg.Claimed)
	}
	for i := range g.Samples {
		s := &g.Samples[i]
		if s.VersionMin != nil && now-int64(*s.VersionMin) > int64(t.cfg.MaxLag) {
			s.Keep, s.KeepReason = new(true), ReasonStale
		}
	}
}

// reason returns the reason why a group is filtered, or "" if it is kept.
func (f *figures) reason(minStd float64, rewards int) string {
	switch {
	case minStd <= 0:
	case rewards < 2:
		return ReasonNoReward
	case f.std != nil && *f.std < minStd:
		return ReasonStd
	}
	return ""
}

// Filter returns the reason why a group with reward.min_std has no training signal, or "" if it has one.
// Judge uses the same rule.
func Filter(g *sink.GroupFacts, minStd float64) string {
	f, rewards := figuresOf(g)
	return f.reason(minStd, rewards)
}
