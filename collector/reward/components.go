package reward

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rollout-rl/rollout/collector"
)

// A Component is a part of a reward.
type Component struct {
	Name   string // a member of the details; unique and not "error"
	Weight float64
	Scorer GroupScorer // see [Each]
}

// Components adds up the rewards of several scorers: the reward is the sum of weight × reward. The details have a
// member for each component:
//
//	{"correct":{"reward":1},"style":{"reward":0.25,"details":{"words":93}}}
//
// If a component with a weight other than 0 has no reward, the rollout has no reward. Its error is the error of
// the first such component. A component of weight 0 is only recorded.
type Components []Component

// Check returns an error if a component whose weight is not 0 cannot score samples of the task.
func (c Components) Check(t *collector.Task) error {
	for _, one := range c {
		checker, ok := one.Scorer.(Checker)
		if !ok || one.Weight == 0 {
			continue
		}
		if err := checker.Check(t); err != nil {
			return fmt.Errorf("%s: %w", one.Name, err)
		}
	}
	return nil
}

// Score scores one rollout. The components must not need the whole group.
func (c Components) Score(ctx context.Context, t *collector.Task, r *collector.Reply) (collector.Reward, error) {
	result := c.ScoreGroup(ctx, []Rollout{{t, r}})[0]
	return result.Reward, result.Err
}

// ScoreGroup scores the rollouts of a group with one component after another.
func (c Components) ScoreGroup(ctx context.Context, group []Rollout) []Result {
	sums := make([]sum, len(group))
	for _, one := range c {
		for i, result := range one.Scorer.ScoreGroup(ctx, group) {
			sums[i].add(&one, result)
		}
	}
	results := make([]Result, len(group))
	for i := range sums {
		results[i] = sums[i].result()
	}
	return results
}

// A sum adds up the components of one reward.
type sum struct {
	total float64
	null  bool  // a component has no reward
	err   error // why
	parts map[string]part
}

type part struct {
	Reward  *float64        `json:"reward"`
	Details json.RawMessage `json:"details,omitempty"`
}

func (s *sum) add(c *Component, result Result) {
	reward, err := collector.Settle(result.Reward, result.Err)
	if s.parts == nil {
		s.parts = map[string]part{}
	}
	s.parts[c.Name] = part{reward.Value, reward.Details}
	switch {
	case c.Weight == 0:
	case reward.Value != nil:
		s.total += c.Weight * *reward.Value
	default:
		s.null = true
		// A missing answer is not a failure of the scorer, so it must not hide one.
		if err != nil && (s.err == nil || errors.Is(s.err, collector.ErrNoAnswer) && !errors.Is(err, collector.ErrNoAnswer)) {
			s.err = fmt.Errorf("%s: %w", c.Name, err)
		}
	}
}

func (s *sum) result() Result {
	details, err := json.Marshal(s.parts)
	if err != nil {
		return Result{Err: fmt.Errorf("reward: details of a component: %w", err)}
	}
	if s.null {
		return Result{collector.Reward{Details: details}, s.err}
	}
	return Result{Reward: collector.Reward{Value: &s.total, Details: details}}
}
