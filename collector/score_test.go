package collector_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/rollout-rl/rollout/collector"
)

// A reward that is not finite becomes null: the sample is data, with the reason.
func TestRewardThatIsNotFinite(t *testing.T) {
	t.Parallel()
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		b, s := &scripted{}, &shelf{atOnce: true}
		c := setup(t, b, s, func(cfg *collector.Config) {
			cfg.Scorer = scorerFunc(func(context.Context, *collector.Task, *collector.Reply) (collector.Reward, error) {
				return collector.Reward{Value: &v}, nil
			})
		})
		if err := c.Run(t.Context(), tasks(1)); err != nil {
			t.Fatal(err)
		}
		st := c.Stats()
		counts(t, st, 1, 0, 0, 0)
		if st.ScorerFailures != 1 || len(s.samples) != 1 {
			t.Fatalf("%v: %d failures of the scorer, %d samples", v, st.ScorerFailures, len(s.samples))
		}
		got := s.samples[0]
		if want := fmt.Sprintf(`{"error":"the scorer returned %v, want a finite number"}`, v); got.Reward != nil || got.RewardDetails == nil || *got.RewardDetails != want {
			t.Errorf("%v: reward %v, details %v", v, got.Reward, got.RewardDetails)
		}
	}
}

// A scorer that fails on every sample ends the run. One successful score, or tasks without a
// reference to score by, do not.
func TestScorerThatFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("judge is gone")
	for _, tt := range []struct {
		name             string
		score            func(n int) error
		most             int
		unscored, failed int
		ends             bool
	}{
		{"always", func(int) error { return broken }, 15, 16, 16, true},
		{"no bound", func(int) error { return broken }, 0, 40, 40, false},
		{"once scored", func(n int) error {
			if n == 5 {
				return nil
			}
			return broken
		}, 15, 39, 39, false},
		{"nothing to score by", func(int) error { return fmt.Errorf("no answer: %w", collector.ErrNoAnswer) }, 15, 40, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			n, told := -1, 0 // one worker
			b, s := &scripted{}, &shelf{atOnce: true}
			c := setup(t, b, s, func(cfg *collector.Config) {
				cfg.MaxUnscored, cfg.Planned = tt.most, 40
				cfg.Events.ScoreFailed = func(collector.Attempt, error) { told++ }
				cfg.Scorer = scorerFunc(func(context.Context, *collector.Task, *collector.Reply) (collector.Reward, error) {
					n++
					one := 1.0
					return collector.Reward{Value: &one}, tt.score(n)
				})
			})
			err := c.Run(t.Context(), tasks(40))
			b.check(t)
			st := c.Stats()
			if e, ok := errors.AsType[*collector.ScorerError](err); ok != tt.ends || ok && (e.Samples != tt.failed || !errors.Is(err, collector.ErrTolerance) || !errors.Is(e.Err, broken)) {
				t.Errorf("ended with %v", err)
			}
			if st.Unscored != tt.unscored || st.ScorerFailures != tt.failed || told != tt.failed {
				t.Errorf("%d unscored, %d failures, %d reported; want %d, %d, %d", st.Unscored, st.ScorerFailures, told, tt.unscored, tt.failed, tt.failed)
			}
			if tt.ends {
				counts(t, st, 15, 0, 0, 25) // the sample that ended the run remains
			} else {
				counts(t, st, 40, 0, 0, 0)
			}
		})
	}
}
