package report_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/report"
	"github.com/rollout-rl/rollout/sink"
)

// TestPageEscapes checks that text from models, tasks and servers cannot leave the data of the page.
func TestPageEscapes(t *testing.T) {
	t.Parallel()
	const evil = `<script>alert(1)</script>"><img src=x onerror=alert(2)>'&amp;{{.}}]]>--><style>*{display:none}</style>`
	f := newFolder(t)
	f.sample(evil, 0, 1, new(1.0), 5, 5).StopReason = evil
	f.failure("b", 0, 1, evil, evil)
	f.write(sink.Parquet)
	f.log(logLine{0, "limit changed", map[string]any{"endpoint": evil, "from": 0, "to": 3, "reason": "start"}},
		logLine{9, "retry", map[string]any{"class": evil}}, logLine{10, "end", map[string]any{"outcome": evil}})
	r := f.read(2)
	r.Model, r.Servers, r.RunID, r.Problems = evil, []string{evil}, evil, []string{evil}
	html := wholePage(t, r)
	data := dataOf(t, html)
	if strings.ContainsAny(data, "<>&") {
		t.Error("the data is not escaped")
	}
	if n := strings.Count(data, `\u003cscript\u003e`); n < 8 {
		t.Errorf("the text is in the data %d times: the test looks at too little", n)
	}
	for _, bad := range []string{"<img", "<style>*"} {
		if strings.Contains(html, bad) {
			t.Errorf("%q is in the page", bad)
		}
	}
	if !strings.Contains(html, "<noscript><pre>") || !strings.Contains(html, "&lt;script&gt;") {
		t.Error("a browser without scripts does not show the report")
	}
}

// TestHardest checks the order of the tasks, and their numbers.
func TestHardest(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	for i, reward := range []float64{1, 0, 0.5} {
		f.sample("mixed", i, 3, new(reward), 5, 10)
	}
	f.sample("failed", 0, 2, new(0.0), 5, 10)
	f.sample("failed", 1, 2, new(0.0), 5, 30)
	f.sample("solved", 0, 1, new(1.0), 5, 10)
	f.sample("unscored", 0, 1, nil, 5, 10)
	f.sample("brief", 0, 1, new(0.0), 5, 10)
	f.write(sink.Parquet)
	want := []report.TaskRewards{
		{Task: "failed", Samples: 2, Scored: 2, Sampled: 40, Equal: true},
		{Task: "brief", Samples: 1, Scored: 1, Sampled: 10, Equal: true},
		{Task: "mixed", Samples: 3, Scored: 3, Passed: 1, RewardSum: 1.5, Sampled: 30},
		{Task: "solved", Samples: 1, Scored: 1, Passed: 1, RewardSum: 1, Sampled: 10, Equal: true},
	}
	got := f.read(8).Groups.Hardest
	if len(got) != len(want) {
		t.Fatalf("%d tasks, want %d: %+v", len(got), len(want), got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("task %d is %+v, want %+v", i, got[i], want[i])
		}
	}
}

// TestRewardsOverTime compares the mean of each step with the rewards of the samples that ended in it.
func TestRewardsOverTime(t *testing.T) {
	t.Parallel()
	for _, gap := range []time.Duration{time.Second, 7 * time.Second, time.Hour} {
		f := newFolder(t)
		var ended []time.Time
		var rewards []*float64
		for i := range 200 {
			var reward *float64
			if i%4 > 0 {
				reward = new(float64(i % 3))
			}
			s := f.sample("a", i, 200, reward, 5, 5)
			s.StartedAt = epoch.Add(time.Duration(i) * gap)
			ended, rewards = append(ended, s.StartedAt.Add(s.Duration)), append(rewards, reward)
		}
		f.write(sink.Parquet)
		r := f.read(200)
		s := r.Rewards.OverTime
		if s == nil || s.Step != r.Throughput.Step || !s.Start.Equal(r.Throughput.Start) || len(s.Mean) != len(r.Throughput.Samples) {
			t.Fatalf("%v: the series is %+v, the throughput %+v", gap, s, r.Throughput)
		}
		sums, counts := make([]float64, len(s.Mean)), make([]float64, len(s.Mean))
		for i, at := range ended {
			if step := int(at.Sub(s.Start).Seconds() / s.Step); rewards[i] != nil {
				sums[step] += *rewards[i]
				counts[step]++
			}
		}
		for i, mean := range s.Mean {
			switch {
			case (mean == nil) != (counts[i] == 0):
				t.Errorf("%v: step %d has the mean %v of %v samples", gap, i, mean, counts[i])
			case mean != nil && math.Abs(*mean-sums[i]/counts[i]) > 1e-12:
				t.Errorf("%v: the mean of step %d is %v, want %v", gap, i, *mean, sums[i]/counts[i])
			}
		}
	}
}
