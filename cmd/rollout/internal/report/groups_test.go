package report_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/report"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
)

// TestFiltered checks that samples with keep=false are counted by reason, and the counts add up.
func TestFiltered(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	for i := range 6 {
		f.sample("a", i, 6, new(1.0), 10, 20)
	}
	f.failure("b", 0, 6, "agent_error", "oops")
	f.failure("b", 1, 6, "censored", "collector: cut at the task's deadline, 2026-03-01T12:00:00Z")
	f.failure("b", 2, 6, "censored", "cut by the tail policy")
	sinktest.Write(t, f.dir, sink.Config{Judge: func(g *sink.GroupFacts) {
		for i := 2; i < len(g.Samples); i++ {
			g.Samples[i].Keep, g.Samples[i].KeepReason = new(false), "reward_std"
		}
		g.Samples[5].KeepReason = "mine"
	}}, f.samples)
	r := f.read(12)
	if got, want := r.Coverage, (report.Coverage{Planned: 12, Committed: 2, Filtered: 4, Failed: 1, Skipped: 2, Late: 1, Remaining: 3, Holds: true}); got != want {
		t.Errorf("coverage %+v, want %+v", got, want)
	}
	if want := map[string]int{"reward_std": 3, "mine": 1}; !maps.Equal(r.Filtered, want) {
		t.Errorf("filtered by %v, want %v", r.Filtered, want)
	}
	if text := report.Text(r); !strings.Contains(text, "filtered            4  33.3 %, with keep=false: reward_std 3, mine 1\n") {
		t.Errorf("the text lacks the filtered groups:\n%s", text)
	}
	html := page(t, r)
	for _, want := range []string{"planned = committed + filtered + failed + skipped + remaining", "keep=false: reward_std 3, mine 1", "cut by the tail policy, or at the deadline of their task", "filtered 4, failed 1"} {
		if !strings.Contains(html, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	f = newFolder(t)
	f.sample("a", 0, 1, nil, 10, 20)
	f.write(sink.Arrow)
	r = f.read(1)
	if r.Filtered != nil || strings.Contains(report.Text(r)+page(t, r), "filtered") {
		t.Error("a run without filters reports filtered groups")
	}
}

// TestLag checks that the lags of all processes are added, from the last status of each.
func TestLag(t *testing.T) {
	t.Parallel()
	status := func(at float64, lag []int) logLine {
		return logLine{at, "status", map[string]any{"in_flight": 1, "lag": lag}}
	}
	end := logLine{99, "end", map[string]any{"outcome": "finished", "exit": 0}}
	f := newFolder(t)
	f.sample("a", 0, 1, nil, 10, 20)
	f.write(sink.Parquet)
	f.log(logLine{0, "launch", nil}, status(10, []int{1}), status(20, []int{3, 1}), end)
	f.log(logLine{100, "launch", nil}, status(110, []int{1, 0, 2})) // killed
	f.log(logLine{200, "launch", nil}, logLine{210, "status", map[string]any{"in_flight": 1}}, end)
	huge := make([]int, 100)
	huge[0], huge[1], huge[99] = 1, -7, 5 // not written by any version of this program
	f.log(logLine{300, "launch", nil}, status(310, huge), end)
	r := f.read(1)
	if r.Lag == nil || !slices.Equal(r.Lag.Groups[:3], []int{5, 1, 2}) || len(r.Lag.Groups) != 33 || r.Lag.CutShort != 1 {
		t.Fatalf("lag %+v", r.Lag)
	}
	if text := report.Text(r); !strings.Contains(text, "lag         0: 5 groups, 1: 1 group, 2: 2 groups, in policy versions; the last groups of 1 killed process are missing\n") {
		t.Errorf("the text lacks the lags:\n%s", text)
	}
	if html := page(t, r); !strings.Contains(html, "Groups by policy lag on arrival") || strings.Index(html, ">0 versions<") > strings.Index(html, ">2 versions<") {
		t.Error("the page does not show the lags in their order")
	}

	f = newFolder(t)
	f.log(logLine{0, "launch", nil}, logLine{10, "status", map[string]any{"in_flight": 1}}, end)
	if r := f.read(0); r.Lag != nil || strings.Contains(report.Text(r), "lag") || strings.Contains(page(t, r), "policy lag") {
		t.Error("a run without lags reports lags")
	}
}
