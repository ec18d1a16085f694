package collector_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/tokenize"
)

// A refusal is a sink's error about one sample.
type refusal struct{ ours bool }

func (r refusal) Error() string { return "row 0: mask 1 with NaN" }
func (r refusal) Refused() bool { return r.ours }

// A sample that the sink refuses because of its content becomes a failure with its tokens, and the
// other samples continue.
func TestRefusedSampleIsAFailure(t *testing.T) {
	t.Parallel()
	var finished []collector.Result
	var complete, accepted []string
	b, s := &scripted{script: func(collector.Attempt) step { return step{} }}, &shelf{atOnce: true}
	s.err = func(n int) error {
		if n == 1 {
			return fmt.Errorf("sample: %w", refusal{true})
		}
		return nil
	}
	c := setup(t, b, s, func(cfg *collector.Config) {
		cfg.Events.AttemptFinished = func(r collector.Result) { finished = append(finished, r) }
		cfg.Events.SampleFinished = func(s *tokenize.Sample) func() {
			what := fmt.Sprintf("%d rows, %d failures", len(s.Rows), len(s.Failures))
			complete = append(complete, what)
			return func() { accepted = append(accepted, what) }
		}
	})
	finish(t, c, tasks(3))
	b.check(t)
	good, failure := "1 rows, 0 failures", "0 rows, 1 failures"
	same(t, "complete", complete, []string{good, good, failure, good})
	same(t, "accepted", accepted, []string{good, failure, good})
	identity(t, c.Stats())
	counts(t, c, 2, 1, 0, 0)
	if len(s.samples) != 3 {
		t.Fatalf("%d samples, want 3", len(s.samples))
	}
	bad := s.samples[1]
	if len(bad.Rows) != 0 || len(bad.Failures) != 1 {
		t.Fatalf("%d rows, %d failures, want none and 1", len(bad.Rows), len(bad.Failures))
	}
	f := bad.Failures[0]
	if f.Class != "internal" || f.Stage != "append" || !strings.Contains(f.Error, "mask 1 with NaN") || len(f.OutputIDs) != 3 {
		t.Errorf("failure %+v", f)
	}
	if r := finished[1]; r.Class != collector.ClassInternal || r.Trained != 0 {
		t.Errorf("attempt finished with %v and %d trained tokens", r.Class, r.Trained)
	}
	if trained := c.Stats().Trained; trained != 2*finished[0].Trained {
		t.Errorf("%d trained tokens, want the tokens of two samples", trained)
	}
}

// A refused failure, or an error whose Refused is false, ends the run: the sample would be lost.
func TestOtherRefusalsEndTheRun(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]func(n int) error{
		"not the sample's fault": func(int) error { return refusal{false} },
		"the failure as well":    func(int) error { return refusal{true} },
	} {
		t.Run(name, func(t *testing.T) {
			b, s := &scripted{script: func(collector.Attempt) step { return step{} }}, &shelf{atOnce: true, err: err}
			c := setup(t, b, s, nil)
			if err := c.Run(t.Context(), tasks(3)); !errors.Is(err, collector.ErrStorage) || !strings.Contains(err.Error(), "NaN") {
				t.Errorf("Run() = %v, want ErrStorage", err)
			}
			identity(t, c.Stats())
		})
	}
}
