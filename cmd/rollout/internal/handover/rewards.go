package handover

import (
	"math"

	"github.com/rollout-rl/rollout/sink"
)

// Rewards contains statistics of the rewards of each group. It takes about 60 bytes per group.
type Rewards map[sink.KeyID]*rewards

// rewards contains the number of samples, their mean reward, and the sum of the squared differences from the
// mean (Welford's algorithm). If all rewards are equal, every difference is exactly 0.
type rewards struct {
	n             int
	mean, squares float64
}

// Add adds the sample of a row. A sample without a reward, or with keep=false, does not count. Every row of a
// run can be added in any order; a sample counts once.
func (m Rewards) Add(r *sink.StoredRow) {
	if r.SegmentIndex != 0 || !new(Left).trainable(r) {
		return
	}
	id := sink.IDOf(r.GroupID)
	g := m[id]
	if g == nil {
		g = &rewards{}
		m[id] = g
	}
	g.n++
	delta := *r.Reward - g.mean
	g.mean += delta / float64(g.n)
	g.squares += delta * (*r.Reward - g.mean)
}

// centered returns the reward of the row minus the mean of its group.
func (m Rewards) centered(r *sink.StoredRow) float64 {
	return *r.Reward - m[sink.IDOf(r.GroupID)].mean
}

// normalized returns the advantage of GRPO as slime computes it: (reward - mean) / (deviation + 1e-6), with the
// deviation of n - 1. It is 0 if the sample is alone in its group.
func (m Rewards) normalized(r *sink.StoredRow) float64 {
	g := m[sink.IDOf(r.GroupID)]
	return m.centered(r) / (math.Sqrt(g.squares/float64(max(g.n-1, 1))) + 1e-6)
}
