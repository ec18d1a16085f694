package stream

import (
	"math"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
)

// What keep_reason says of marked rows. Those of ReasonStale have keep=true, the others
// keep=false.
const (
	// ReasonStd: the rewards of the group differ too little: their standard deviation is less
	// than reward.min_std.
	ReasonStd = "reward_std"
	// ReasonNoReward: fewer than two samples of the group have a reward, so there is nothing
	// to compare.
	ReasonNoReward = "reward_missing"
	// ReasonStale: the rows were more than run.max_lag versions old when their group was whole, by
	// the present version, where one was known then.
	ReasonStale = "stale"
)

// figures are what a group event tells beside its counts.
type figures struct {
	mean, std *float64 // of the rewards of samples with rows; nil: none has one
	versions  *[2]int32
	stale     *bool // what its rows say, of a group that is told again; nil: nobody knows
	late      bool  // a sample was cut at the deadline of the task
}

// figuresOf sums a group up. rewards is how many of its samples with rows have a reward.
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

// Judge looks at a whole group before its rows are written. With a MinStd it marks all samples
// of a group that says nothing about which rollout is better. Of the others, with a MaxLag, it
// marks the samples that are too old: they are kept, and whoever trains decides. It is
// sink.Config.Judge.
func (t *Tracker) Judge(g *sink.GroupFacts) {
	f, rewards := figuresOf(g)
	if reason := t.cfg.reason(f, rewards); reason != "" {
		keep, keys := false, make([]string, len(g.Samples))
		for i := range g.Samples {
			g.Samples[i].Keep, g.Samples[i].KeepReason = &keep, reason
			keys[i] = g.Samples[i].Key
		}
		t.cfg.LeftOut(keys...)
	} else if t.cfg.MaxLag >= 0 {
		t.markStale(g)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.figures[g.ID] = f
}

// markStale marks the samples that are too old. It marks nothing until a present version is
// known, and no sample whose own versions are not proven.
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

// reason is why a group is left out; empty: it is not.
func (c *TrackerConfig) reason(f figures, rewards int) string {
	switch {
	case c.MinStd <= 0:
	case rewards < 2:
		return ReasonNoReward
	case f.std != nil && *f.std < c.MinStd:
		return ReasonStd
	}
	return ""
}
