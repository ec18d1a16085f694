package show

import (
	"testing"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/tokenize"
)

// TestOnlyWhatTheSinkAcceptsIsCounted checks that a sample that the sink rejects counts as the
// failure that replaces it, and that a sample cut while it waited for the sink does not count.
func TestOnlyWhatTheSinkAcceptsIsCounted(t *testing.T) {
	t.Parallel()
	o := &Observer{Log: DiscardLog(), Metrics: NewMetrics("v1")}
	finished := o.Events(func(collector.Attempt, error) {}).SampleFinished
	good := func() *tokenize.Sample {
		return &tokenize.Sample{Key: "k", GroupID: "g", GroupSize: 1, Rows: []tokenize.Row{{InputIDs: make([]int32, 5)}}}
	}
	finished(good()) // rejected
	failure := &tokenize.Sample{Key: "k", GroupID: "g", GroupSize: 1, Failures: []tokenize.Failure{{Class: "internal", Stage: "append", Call: -1}}}
	accepted := finished(failure)
	if n := len(o.Tally.Failures()); n != 0 {
		t.Errorf("%d classes of failures before the sink accepted any", n)
	}
	accepted()
	if r := o.Tally.result(); r.Tokens != 0 || r.MostRows != 0 || len(r.Grades) != 0 || o.Tally.Failures()["internal"] != 1 {
		t.Errorf("after one refused sample: %+v, failed: %v", r, o.Tally.Failures())
	}

	kept := good()
	accepted = finished(kept)
	kept.Rows[0] = tokenize.Row{} // the sink owns the rows and can change them
	accepted()
	if r := o.Tally.result(); r.Tokens != 5 || r.MostRows != 1 {
		t.Errorf("after one accepted sample: %+v", r)
	}
}
