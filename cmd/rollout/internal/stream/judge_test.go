package stream_test

import (
	"fmt"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/stream"
	"github.com/rollout-rl/rollout/collector/pace"
	"github.com/rollout-rl/rollout/sink"
)

// facts returns a whole group of samples with these rewards and versions; nil is unknown.
func facts(rewards []float64, versions ...*int32) *sink.GroupFacts {
	g := &sink.GroupFacts{ID: "g", Size: int32(len(versions))}
	for i, v := range versions {
		s := sink.SampleFacts{Index: int32(i), Rows: 1, VersionMin: v, VersionMax: v}
		if i < len(rewards) {
			s.Reward = &rewards[i]
		}
		g.Samples = append(g.Samples, s)
	}
	return g
}

func verdicts(g *sink.GroupFacts) string {
	var out string
	for _, s := range g.Samples {
		if s.Keep == nil {
			out += "null "
			continue
		}
		out += fmt.Sprintf("%v:%s ", *s.Keep, s.KeepReason)
	}
	return out
}

// judging returns a tracker that only judges groups.
func judging(std float64, lag int, p *pace.Pacer) *stream.Tracker {
	return stream.NewTracker(stream.TrackerConfig{MinStd: std, MaxLag: lag, Pace: p})
}

func TestJudge(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		std  float64
		lag  int
		g    *sink.GroupFacts
		want string
	}{
		{"nothing asked", 0, -1, facts([]float64{1, 1}, new(int32(0)), new(int32(0))), "null null "},
		{"too old", 0, 1, facts(nil, new(int32(7)), new(int32(6)), new(int32(5)), nil), "null null true:stale null "},
		{"on-policy", 0, 0, facts(nil, new(int32(7)), new(int32(6))), "null true:stale "},
		{"no version was ever set", 0, 0, facts(nil, new(int32(0))), "null "},
		{"newer than told", 0, 0, facts(nil, new(int32(8))), "null "},
		{"equal rewards", 0.1, -1, facts([]float64{1, 1}, nil, nil), "false:reward_std false:reward_std "},
		{"equal and old", 0.1, 0, facts([]float64{1, 1}, new(int32(1)), nil), "false:reward_std false:reward_std "},
		{"different and old", 0.1, 0, facts([]float64{0, 1}, new(int32(1)), new(int32(7))), "true:stale null "},
		{"one reward", 0.1, -1, facts([]float64{1}, nil, nil), "false:reward_missing false:reward_missing "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := pace.New(pace.Config{MaxLag: tc.lag})
			if tc.name != "no version was ever set" {
				p.SetVersion(7)
			}
			judging(tc.std, tc.lag, p).Judge(tc.g)
			if got := verdicts(tc.g); got != tc.want {
				t.Errorf("verdicts %q, want %q", got, tc.want)
			}
		})
	}
}
