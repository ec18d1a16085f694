package show

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/limit"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/sink"
)

// A cut is told where it cut something: a last sample that failed by itself leaves none.
func TestSummaryTail(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		tail      collector.TailStats
		unstarted int
		want      bool
	}{
		{"no cut", collector.TailStats{Kept: collector.Measures{N: 3}}, 0, false},
		{"nothing left to cut", collector.TailStats{Cut: true, Kept: collector.Measures{N: 3}}, 0, false},
		{"one in flight", collector.TailStats{Cut: true, Censored: collector.Measures{N: 1}}, 0, true},
		{"one that never began", collector.TailStats{Cut: true}, 1, true},
	} {
		var s Summary
		s.AddTail("deadline=1h", tt.unstarted, tt.tail)
		if told := s.Tail != nil; told != tt.want {
			t.Errorf("%s: told %v, want %v", tt.name, told, tt.want)
		}
	}
}

// What was sampled and is in no row and no failure is told, in one line and only
// where there is some.
func TestSummaryLeftOut(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		stats collector.Stats
		want  string // the line; empty: none
		json  string
	}{
		{"nothing", collector.Stats{}, "", `"cut_calls":0,"cut_tokens":0,"empty_rows":0,`},
		{
			"cut",
			collector.Stats{Yield: collector.Yield{CutCalls: 2, Cut: 345}},
			"2 calls with 345 sampled tokens beyond tokens.max_row_tokens",
			`"cut_calls":2,"cut_tokens":345,"empty_rows":0,`,
		},
		{"empty", collector.Stats{Yield: collector.Yield{EmptyRows: 3}}, "3 rows without a token to train on", `"cut_calls":0,"cut_tokens":0,"empty_rows":3,`},
		{
			"both",
			collector.Stats{Yield: collector.Yield{CutCalls: 1, Cut: 7, EmptyRows: 1}},
			"1 calls with 7 sampled tokens beyond tokens.max_row_tokens, 1 rows without a token to train on",
			`"cut_calls":1,"cut_tokens":7,"empty_rows":1,`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := Summarize(tt.stats, sink.Stats{}, prompt.Stats{}, new(Tally), 0)
			want := ""
			if tt.want != "" {
				want = "  left out   " + tt.want + "\n"
			}
			text := s.text()
			if !strings.Contains(text, want) || strings.Contains(text, "left out") != (want != "") {
				t.Errorf("text() lacks, or should not have, %q:\n%s", want, text)
			}
			body, err := json.Marshal(s)
			if err != nil || !strings.Contains(string(body), tt.json) {
				t.Errorf("JSON lacks %s: %s, %v", tt.json, body, err)
			}
		})
	}
}

// TestHintOfMore: more in flight is advised where the controller of the limit measured
// that the last growth paid off, and not because all places were busy.
func TestHintOfMore(t *testing.T) {
	t.Parallel()
	c := config.Default()
	s := &Summary{Planned: 1000, Committed: 1000, Rows: 1000, Seconds: 3600}
	busy := collector.EndpointStats{Name: "http://a", Limit: 24, Max: 24}
	gained := busy
	gained.Topped = &limit.Gain{From: 16, To: 24, Before: 1.5, After: 2.25}
	down := gained
	down.Down = true
	for _, tt := range []struct {
		name     string
		endpoint collector.EndpointStats
		want     string
	}{
		{"nothing measured", busy, ""},
		{"measured", gained, "http://a finished 2.25 samples/s with 24 in flight and 1.50 with 16, the most that server.max_in_flight allows: --max-in-flight 30 may be faster still"},
		{"measured before it went down", down, ""},
	} {
		hints := strings.Join(s.hints(c, collector.Stats{Endpoints: []collector.EndpointStats{tt.endpoint}}), "\n")
		if tt.want == "" && strings.Contains(hints, "in-flight") || !strings.Contains(hints, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, hints, tt.want)
		}
	}
}
