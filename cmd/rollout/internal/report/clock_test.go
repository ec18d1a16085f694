package report_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/sink"
)

// TestClockJumps checks that a clock change during a run leaves no negative or absurd number. The
// report names the jump and excludes it.
func TestClockJumps(t *testing.T) {
	t.Parallel()
	const hour, day, year = 3600.0, 86400.0, 365 * 86400.0
	for _, test := range []struct {
		name     string
		by       float64
		notes    []string
		throughs int // maximum number of steps
	}{
		{"no jump", 0, nil, 96},
		{"an hour back", -hour, []string{"jumped back by 59 min 50 s", "before the run was created"}, 96},
		{"a day ahead", day, []string{"jumped forward by 24 h 00 min, or the machine slept", "after this report"}, 96},
		{"a year back", -year, []string{"jumped back by 8,760 h 00 min", "before the run was created"}, 96},
		{"a year ahead", year, []string{"jumped forward by 8,760 h 00 min", "after this report"}, 96},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := newFolder(t)
			var lines []logLine
			for i := range 12 { // two minutes of work; the clock changes after the first
				at := 10 * float64(i)
				if i >= 6 {
					at += test.by
				}
				s := f.sample("a", i, 12, nil, 10, 100)
				s.StartedAt = epoch.Add(time.Duration(at * float64(time.Second)))
				s.Duration, s.Working = 9*time.Second, 8*time.Second
				lines = append(lines, logLine{at, "status", map[string]any{"in_flight": 4}},
					logLine{at, "limit changed", map[string]any{"endpoint": "http://a", "from": 4, "to": 5, "reason": "growth"}})
			}
			lines[0].msg = "launch"
			f.log(append(lines, logLine{120 + test.by, "end", map[string]any{"outcome": "finished", "exit": 0}})...)
			f.write(sink.Parquet)
			r := f.read(12)
			if jumps := len(r.ClockJumps); jumps > 1 || (jumps == 1) != (test.by != 0) {
				t.Errorf("jumps %+v", r.ClockJumps)
			}
			if lasted := r.Invocations[0].Seconds; lasted < 109 || lasted > 121 {
				t.Errorf("lasted %v s, want some 120", lasted)
			}
			if rate := r.Throughput.TokensPerSecond; rate < 9 || rate > 12 || len(r.Throughput.Tokens) > test.throughs {
				t.Errorf("%v tokens/s in %d steps, want 1,200 in some 120 s", rate, len(r.Throughput.Tokens))
			}
			if d := r.Time.Total; d.Min != 9 || d.Max != 9 {
				t.Errorf("time %+v", d)
			}
			var said []string
			text := strings.ReplaceAll(page(t, r), "\u00a0", " ")
			for _, m := range regexp.MustCompile(`<li class="warn">([^<]*)</li>`).FindAllStringSubmatch(text, -1) {
				if strings.Contains(m[1], "clock") {
					said = append(said, m[1])
				}
			}
			if len(said) != len(test.notes) {
				t.Errorf("got %q, want %q", said, test.notes)
			}
			for i := range min(len(said), len(test.notes)) {
				if !strings.Contains(said[i], test.notes[i]) {
					t.Errorf("got %q, want %q", said[i], test.notes[i])
				}
			}
			if m := regexp.MustCompile(`>-[0-9][0-9.,]* (s|min|h)\b`).FindString(text); m != "" {
				t.Errorf("a negative time: %q", m)
			}
		})
	}
}

// TestClockJumpsOfLogs checks that overlapping invocations are reported, that slightly disordered
// lines are not, and that the number of jumps is bounded.
func TestClockJumpsOfLogs(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	f.log(logLine{0, "launch", nil}, logLine{0.5, "status", nil}, logLine{0.4, "retry", nil}, logLine{300, "status", nil}, logLine{310, "end", nil})
	f.log(logLine{100, "launch", nil}, logLine{5000, "status", nil}, logLine{5010, "status", nil})
	f.log(logLine{90000, "launch", nil}, logLine{90001, "end", nil})
	r := f.read(1)
	if len(r.ClockJumps) != 1 || r.ClockJumps[0].Log != "collect-0002.jsonl" || r.ClockJumps[0].Seconds != -210 {
		t.Errorf("jumps %+v, want the one back of the second log: a pause, a long beginning and disorder are none", r.ClockJumps)
	}
	for i, want := range []float64{310.1, 4910, 1} {
		if got := r.Invocations[i].Seconds; got < want-.2 || got > want+.2 {
			t.Errorf("invocation %d lasted %v s, want %v", i+1, got, want)
		}
	}
	var many []logLine
	for i := range 100 {
		many = append(many, logLine{float64(i%2) * 1000, "status", nil})
	}
	f.log(many...)
	if n := len(f.read(1).ClockJumps); n > 20 {
		t.Errorf("%d jumps", n)
	}
}
