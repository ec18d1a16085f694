package rescore

import (
	"github.com/rollout-rl/rollout/cmd/rollout/internal/stream"
	"github.com/rollout-rl/rollout/sink"
)

// census knows which samples of each group are in the log. It takes about 50 bytes per group.
type census struct {
	whole   sink.GroupLog
	left    map[sink.KeyID]int32 // by group id: the samples with rows that have not been scored yet
	samples int                  // with rows
	last    int64                // number of the last entry
}

func (c *census) add(of *sink.Commit) {
	c.whole.Add(of)
	for i := range of.Samples {
		if s := &of.Samples[i]; s.Rows > 0 {
			c.samples++
			c.left[sink.IDOf(of.Groups[s.Group].ID)]++
		}
	}
}

// done counts a sample of a group. It reports whether it was the last one.
func (c *census) done(group string) bool {
	id := sink.IDOf(group)
	c.left[id]--
	return c.left[id] == 0
}

// A scoredGroup holds the scores of a group until all its samples are scored.
type scoredGroup struct {
	scores []*sink.StoredScore
	facts  []sink.SampleFacts
}

func (g *scoredGroup) add(j *job) {
	g.scores = append(g.scores, &j.score)
	g.facts = append(g.facts, sink.SampleFacts{Index: j.index, Key: j.score.SampleKey, Rows: 1, Reward: j.score.Reward})
}

// filter applies reward.min_std to the group. It replaces an earlier decision of that filter, and keeps the
// decisions of other filters.
func (g *scoredGroup) filter(minStd float64, whole bool) {
	reason := ""
	if whole {
		reason = stream.Filter(&sink.GroupFacts{Samples: g.facts}, minStd)
	}
	for _, s := range g.scores {
		switch {
		case reason != "":
			s.Keep, s.KeepReason = new(false), new(reason)
		case s.KeepReason != nil && (*s.KeepReason == stream.ReasonStd || *s.KeepReason == stream.ReasonNoReward):
			s.Keep, s.KeepReason = nil, nil
		}
	}
}
