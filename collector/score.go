package collector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/rollout-rl/rollout/tokenize"
)

// A ScorerError ends a run if the Scorer has failed on every sample so far. It wraps ErrTolerance.
// The last sample must be run again.
type ScorerError struct {
	Samples int   // number of samples that could not be scored
	Err     error // error of the last sample
}

func (e *ScorerError) Error() string {
	return fmt.Sprintf("the scorer failed on all %d samples so far: %s", e.Samples, line(e.Err))
}

// Unwrap returns ErrTolerance.
func (e *ScorerError) Unwrap() error { return ErrTolerance }

// score sets the reward of the sample. If the scorer fails, the reward stays null. An error means
// that the run ends.
func (a *attempt) score(ctx context.Context, s *tokenize.Sample, r *Reply, calls []tokenize.Call) error {
	scorer := a.w.c.cfg.Scorer
	if r.Reward != nil {
		s.Reward = new(*r.Reward)
		return nil
	}
	if scorer == nil {
		return nil
	}
	a.setStage(StageScore)
	r.Text = r.Output
	if a.w.c.cfg.Splitter != nil {
		a.w.c.cfg.Splitter.Split(r, calls)
	}
	reward, err := scorer.Score(ctx, a.Task, r)
	if ctx.Err() == context.Canceled {
		return context.Cause(ctx)
	}
	reward, err = Settle(reward, err)
	if err != nil && r.Redact != nil {
		err = &redactedError{r.Redact(err.Error()), err}
	}
	if err := a.w.c.scored(a.Attempt, err); err != nil {
		return err
	}
	if reward.Value != nil {
		s.Reward = new(*reward.Value)
	}
	if len(reward.Details) > 0 {
		s.RewardDetails = new(r.redacted(reward.Details))
	}
	return nil
}

// A redactedError is an error whose text contains no secret.
type redactedError struct {
	text string
	err  error
}

func (e *redactedError) Error() string { return e.text }
func (e *redactedError) Unwrap() error { return e.err }

// scored counts the result of the scorer. The parameter err is nil if the scorer returned a Reward,
// even a Reward without a value. If scored itself returns an error, that error ends the run.
func (c *Collector) scored(a Attempt, err error) error {
	failed := err != nil && !errors.Is(err, ErrNoAnswer)
	n, over := 0, false
	c.counters.update(func(s *Stats) {
		if err != nil {
			s.Unscored++
		}
		if failed {
			s.ScorerFailures++
		}
		if err == nil {
			c.counters.scored = true
		}
		n = s.ScorerFailures
		over = failed && !c.counters.scored && c.cfg.MaxUnscored > 0 && n > c.cfg.MaxUnscored
	})
	if failed {
		c.cfg.Events.ScoreFailed(a, err)
	}
	if !over {
		return nil
	}
	stop := &ScorerError{Samples: n, Err: err}
	c.end(stop)
	return stop
}

// Settle returns the reward to store for the result of a Scorer. The error states why the sample is not
// scored: it is err, or the value is not finite. The reward is then nil, and the details have the member
// "error" in addition to the members that the Scorer returned.
func Settle(r Reward, err error) (Reward, error) {
	if v := r.Value; err == nil && v != nil && (math.IsNaN(*v) || math.IsInf(*v, 0)) {
		err = fmt.Errorf("the scorer returned %v, want a finite number", *v)
	}
	if err == nil {
		return r, nil
	}
	members := map[string]json.RawMessage{}
	if json.Unmarshal(r.Details, &members) != nil || members == nil {
		members = map[string]json.RawMessage{}
	}
	text, merr := json.Marshal(line(err))
	if merr != nil {
		return Reward{}, err // cannot happen, because line is valid UTF-8
	}
	members["error"] = text
	raw, merr := json.Marshal(members)
	if merr != nil {
		return Reward{}, err // cannot happen, because the members were decoded from JSON
	}
	return Reward{Details: raw}, err
}
