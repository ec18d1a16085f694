package collector_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/rollout-rl/rollout/collector"
)

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
				counts(t, c, 15, 0, 0, 25) // the sample that ended the run remains
			} else {
				counts(t, c, 40, 0, 0, 0)
			}
		})
	}
}
