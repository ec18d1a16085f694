package reward

import (
	"context"

	"github.com/rollout-rl/rollout/collector"
)

// A Rollout is a finished rollout of a task.
type Rollout struct {
	Task  *collector.Task
	Reply *collector.Reply
}

// A Result is the result of a scorer for one rollout. If Err is not nil, the rollout is not scored; its Reward
// can still have details.
type Result struct {
	Reward collector.Reward
	Err    error
}

// A GroupScorer scores the rollouts of a group together, for example to compare them. It must be safe for
// concurrent use.
type GroupScorer interface {
	// ScoreGroup returns the results of the rollouts, in the same order.
	ScoreGroup(ctx context.Context, group []Rollout) []Result
}

// Each returns a GroupScorer that scores each rollout of a group on its own.
func Each(s collector.Scorer) GroupScorer { return each{s} }

type each struct{ scorer collector.Scorer }

func (e each) ScoreGroup(ctx context.Context, group []Rollout) []Result {
	results := make([]Result, len(group))
	for i, r := range group {
		results[i].Reward, results[i].Err = e.scorer.Score(ctx, r.Task, r.Reply)
	}
	return results
}

// Check is the Check of the scorer, if it has one.
func (e each) Check(t *collector.Task) error {
	if c, ok := e.scorer.(Checker); ok {
		return c.Check(t)
	}
	return nil
}
