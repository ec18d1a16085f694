package show

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/limit"
	"github.com/rollout-rl/rollout/collector/pace"
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

// TestSummaryStore checks that the summary shows the requests of a worker to a bucket, and none of a
// worker with a folder.
func TestSummaryStore(t *testing.T) {
	t.Parallel()
	s := Summary{Planned: 9000, Committed: 3000, Failed: 50, Earlier: earlier{Committed: 1000, Failed: 50}}
	s.AddStore(map[string]int64{"get": 0}, map[string]int64{"list": 0})
	if strings.Contains(s.text(), "store") || s.Store != nil {
		t.Errorf("requests of a folder:\n%s", s.text())
	}
	s.AddStore(map[string]int64{"put": 500, "get": 160, "head": 0}, map[string]int64{"put": 640, "get": 660})
	const want = "  store      660 requests, 330 per 1,000 samples: get 160, put 500; and 1,300 before, to check the bucket\n"
	if got := s.text(); !strings.Contains(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestSummaryTaps checks that the summary shows what the taps saw, what is missing in their spools,
// and the remedies, without zero counts.
func TestSummaryTaps(t *testing.T) {
	t.Parallel()
	const saw = "saw 20 calls, 9 of them from samples"
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
			saw + ", 2 repeated, 3 without token ids (such as summaries), 4 failed or incomplete, 5 from failed rollouts or other programs, 6 dropped to save memory",
			"sample calls missing from the server's answers: retry 2, summary 1",
			"sample calls not found in the spools: alike 1",
			"3 calls passed through a tap but were not stored: the tap's disk is full or too slow; see the tap's log and rollout_tap_spool_dropped_total",
			"2 segments of a spool are incomplete, so calls might be missing: stop the tap only with SIGTERM, and check whether it ran out of memory or disk space",
			"1 places in a spool are damaged: check the disk; the intact data around the damage was read",
			"9 calls in damaged places cannot be read: their prompts come from other sources; start the tap with a new --spool folder",
			"6 segments of a spool were removed before they were read: raise the tap's --spool-bytes or --spool-age, or collect while the tap runs",
			"7 reads of a spool failed but succeeded later: the tap or the network was temporarily down",
		}},
		{"a tap that is away", down, []string{saw, "a spool cannot be read: connection refused; check that rollout tap is running there"}},
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
		s := Summarize(tt.stats, sink.Stats{}, prompt.Stats{}, new(Tally), 0)
		want := ""
		if tt.want != "" {
			want = "  omitted    " + tt.want + "\n"
		}
		text := s.text()
		if !strings.Contains(text, want) || strings.Contains(text, "omitted") != (want != "") {
			t.Errorf("%s: text() lacks, or should not have, %q:\n%s", tt.name, want, text)
		}
		body, err := json.Marshal(s)
		if err != nil || !strings.Contains(string(body), tt.json) {
			t.Errorf("%s: JSON lacks %s: %s, %v", tt.name, tt.json, body, err)
		}
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
		{"measured", gained, "http://a finished 2.25 samples/s with 24 in flight (the limit set by server.max_in_flight), but only 1.50 with 16. A larger limit, such as --max-in-flight 30, might be even faster"},
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

// TestGroups checks that a run of whole groups shows them in every form, that their counts add up,
// and that other runs show no groups.
func TestGroups(t *testing.T) {
	t.Parallel()
	s := collector.Stats{
		Planned: 40, Committed: 16, Filtered: 8, Failed: 4, Skipped: 2, Remaining: 10, Earlier: collector.Earlier{Committed: 4, Filtered: 2},
		Pace: &pace.Stats{Version: 3, Held: pace.HeldAhead, Begun: 9, Informative: 4, Filtered: 2, Failed: 1, Until: 9, Ahead: 3, Lags: [pace.LagMost + 1]int{2, 1, pace.LagMost: 1}},
	}
	sum := Summarize(s, sink.Stats{}, prompt.Stats{}, &Tally{}, time.Second)
	if sum.Planned != sum.Committed+sum.Filtered+sum.Failed+sum.Skipped+sum.Remaining {
		t.Errorf("the counts do not add up: %+v", sum)
	}
	text := sum.text()
	for _, want := range []string{
		"\n  filtered         8   with keep=false\n",
		"\n  groups     7 of 9 started groups are whole (4 informative of the 9 wanted, 2 filtered, 1 failed); 3 ahead of the reader\n",
		"\n  lag        0: 2 groups, 1: 1 group, 32 or more: 1 group, in policy versions\n",
		"22.0 samples/s", // of this invocation: 28 ended, 6 before
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the summary lacks %q:\n%s", want, text)
		}
	}
	v := View{Stats: s}
	status := strings.Join(v.Status(nil), "\n")
	for _, want := range []string{"40 planned = 16 committed + 8 filtered + 4 failed + 2 skipped + 10 remaining", "3 ahead of the reader; the next group is waiting for acknowledgement"} {
		if !strings.Contains(status, want) {
			t.Errorf("the status lacks %q:\n%s", want, status)
		}
	}
	if line := v.line(); strings.Count(line, ", 7 groups whole, 3 ahead, 2 filtered, version 3, waiting for acknowledgement") != 1 {
		t.Errorf("the line is %q", line)
	}
	if n := v.json()["earlier"]; n != 6 {
		t.Errorf("the event has %v samples of earlier processes, want 6", n)
	}
	if n := done(s); n != 30 || doneNow(s) != 24 {
		t.Errorf("done %d, %d of them now, want 30 and 24", n, doneNow(s))
	}
	event, err := json.Marshal(v.json()["groups"])
	if want := `{"begun":9,"whole":7,"informative":4,"filtered":2,"failed":1,"until":9,"ahead":3,"version":3,"lag":[2,1,` + strings.Repeat("0,", 30) + `1]}`; err != nil || string(event) != want {
		t.Errorf("the event has %s, want %s", event, want)
	}
	var log bytes.Buffer
	(&Log{Logger: slog.New(slog.NewJSONHandler(&log, nil))}).Status(s)
	if !strings.Contains(log.String(), `"groups_whole":7,`) || !strings.Contains(log.String(), `"lag":[2,1,0,`) {
		t.Errorf("the log is %s", log.String())
	}

	s.Pace, s.Filtered, s.Earlier.Filtered = nil, 0, 0
	v, log = View{Stats: s}, bytes.Buffer{}
	(&Log{Logger: slog.New(slog.NewJSONHandler(&log, nil))}).Status(s)
	all := Summarize(s, sink.Stats{}, prompt.Stats{}, &Tally{}, time.Second).text() + strings.Join(v.Status(nil), "\n") + log.String()
	for _, word := range []string{"filtered", "groups", "lag"} {
		if strings.Contains(all, word) {
			t.Errorf("a run of samples mentions %s:\n%s", word, all)
		}
	}
	if groups := v.json()["groups"]; groups != nil {
		t.Errorf("a run of samples has groups: %v", groups)
	}
}
