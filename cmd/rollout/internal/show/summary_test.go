package show

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/limit"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/sink"
)

// TestSummaryTail checks that the tail policy is shown only if it cut something.
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
			t.Errorf("%s: got %v, want %v", tt.name, told, tt.want)
		}
	}
}

// TestSummaryTaps checks that the summary shows what the taps saw, what is missing in their spools,
// and the remedies, without zero counts.
func TestSummaryTaps(t *testing.T) {
	t.Parallel()
	const saw = "saw 20 calls, 9 of them by samples"
	all := tap.IndexStats{
		Calls: 20, Claimed: 9, Retries: 2, Unread: 3, Broken: 4, Others: 5, Evicted: 6,
		Unshown: map[string]int64{"retry": 2, "summary": 1}, Refused: map[string]int64{"alike": 1},
		Read: tap.ReaderStats{Damaged: 1, DamagedBytes: 99, Torn: 2, Dropped: 3, Lost: 4, Orphans: 5, Removed: 6, Errors: 7},
	}
	down := tap.IndexStats{Calls: 20, Claimed: 9, Read: tap.ReaderStats{Errors: 7, Err: errors.New("connection refused")}}
	for _, tt := range []struct {
		name  string
		stats tap.IndexStats
		want  []string
	}{
		{"nothing", tap.IndexStats{Calls: 20, Claimed: 9}, []string{saw}},
		{"all", all, []string{
			saw + ", 2 repeated, 3 without token ids, such as summaries, 4 failed or incomplete, 5 by others, 6 dropped to save memory",
			"by samples, but in no answer: retry 2, summary 1",
			"not found: alike 1",
			"3 calls passed a tap and were not stored: its disk is full or too slow; see its log and rollout_tap_spool_dropped_total",
			"2 times a tap ended without closing its spool, and the last calls may be missing: stop it with SIGTERM, and check whether it was killed for memory or its disk was full",
			"1 places of a spool are damaged: check its disk; intact data around them was read",
			"9 calls cannot be read because of damage: their prompts come from other sources; a new --spool folder leaves the damage behind",
			"6 times segments were removed before they were read: raise the tap's --spool-bytes or --spool-age, or collect while it runs",
			"7 reads of a spool failed and later succeeded: the tap or the network was down for a while",
		}},
		{"a tap that is away", down, []string{saw, "a spool cannot be read: connection refused; is rollout tap running there?"}},
	} {
		var got []string
		tapOf(&tt.stats).addLines(func(_, format string, args ...any) { got = append(got, fmt.Sprintf(format, args...)) })
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s:\n%s\nwant:\n%s", tt.name, strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
		}
	}
}

// TestSummaryLeftOut checks that sampled tokens in no row and no failure are shown in one line, if
// there are any.
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
		{"empty", collector.Stats{Yield: collector.Yield{EmptyRows: 3}}, "3 rows without a trainable token", `"cut_calls":0,"cut_tokens":0,"empty_rows":3,`},
		{
			"both",
			collector.Stats{Yield: collector.Yield{CutCalls: 1, Cut: 7, EmptyRows: 1}},
			"1 calls with 7 sampled tokens beyond tokens.max_row_tokens, 1 rows without a trainable token",
			`"cut_calls":1,"cut_tokens":7,"empty_rows":1,`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := Summarize(tt.stats, sink.Stats{}, prompt.Stats{}, new(Tally), 0)
			want := ""
			if tt.want != "" {
				want = "  omitted    " + tt.want + "\n"
			}
			text := s.text()
			if !strings.Contains(text, want) || strings.Contains(text, "omitted") != (want != "") {
				t.Errorf("text() lacks, or should not have, %q:\n%s", want, text)
			}
			body, err := json.Marshal(s)
			if err != nil || !strings.Contains(string(body), tt.json) {
				t.Errorf("JSON lacks %s: %s, %v", tt.json, body, err)
			}
		})
	}
}

// TestHintOfMore checks that more samples in flight are suggested only if the limit's controller
// measured a lasting gain.
func TestHintOfMore(t *testing.T) {
	t.Parallel()
	c := config.NewLoader(func(string) string { return "" }).Config
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
		{"measured", gained, "http://a finished 2.25 samples/s with 24 in flight and 1.50 with 16, the maximum that server.max_in_flight allows: --max-in-flight 30 can be even faster"},
		{"measured before it went down", down, ""},
	} {
		hints := strings.Join(s.hints(c, collector.Stats{Endpoints: []collector.EndpointStats{tt.endpoint}}), "\n")
		if tt.want == "" && strings.Contains(hints, "in-flight") || !strings.Contains(hints, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, hints, tt.want)
		}
	}
}

// TestHintOfVersions checks that reading all traces is suggested if the engine has versions that
// were not read, and no version source is set.
func TestHintOfVersions(t *testing.T) {
	t.Parallel()
	const advice = "--policy-version trace"
	for name, tt := range map[string]struct {
		yield collector.Yield
		said  config.PolicyVersion
		want  bool
	}{
		"some":               {collector.Yield{VersionTrace: 5, VersionNone: 7}, config.PolicyVersion{}, true},
		"all":                {collector.Yield{VersionTrace: 5}, config.PolicyVersion{}, false},
		"not numbered":       {collector.Yield{VersionNone: 7}, config.PolicyVersion{}, false},
		"claimed":            {collector.Yield{VersionTrace: 5, VersionNone: 7}, config.PolicyVersion{Claimed: true}, false},
		"traces were wanted": {collector.Yield{VersionTrace: 5, VersionNone: 7}, config.PolicyVersion{Traces: true}, false},
	} {
		c := config.NewLoader(func(string) string { return "" }).Config
		c.Tokens.PolicyVersion = tt.said
		s := Summarize(collector.Stats{Yield: tt.yield}, sink.Stats{}, prompt.Stats{}, new(Tally), 0)
		if hints := strings.Join(s.hints(c, collector.Stats{}), "\n"); strings.Contains(hints, advice) != tt.want {
			t.Errorf("%s: %q, want advice: %v", name, hints, tt.want)
		}
	}
}
