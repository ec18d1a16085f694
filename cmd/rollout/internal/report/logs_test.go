package report_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/report"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/journal"
	"github.com/rollout-rl/rollout/sink"
)

// TestLogs reads the logs of several invocations. The last was killed while it wrote a line.
func TestLogs(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	change := func(at float64, from, to int, reason string) logLine {
		return logLine{at, "limit changed", map[string]any{"endpoint": "http://a", "from": from, "to": to, "reason": reason}}
	}
	f.log(
		logLine{0, "launch", map[string]any{"run_id": "r", "planned": 4}},
		change(0, 0, 32, "start"), change(5, 32, 64, "growth"), change(9, 64, 51, "rate_limited"),
		logLine{10, "status", map[string]any{"in_flight": 7}},
		logLine{11, "retry", map[string]any{"class": "rate_limited", "delay_s": 1.5}},
		logLine{12, "retry", map[string]any{"class": "connection", "delay_s": 0.5}},
		logLine{20, "end", map[string]any{"outcome": "interrupted", "exit": 130, "duplicates_refused": 2}},
	)
	f.log(logLine{3600, "launch", map[string]any{"resumed": true}}, change(3601, 51, 53, "growth"))
	whole, err := os.ReadFile(filepath.Join(f.dir, "logs/collect-0002.jsonl"))
	must(t, err)
	f.put("logs/collect-0002.jsonl", string(whole)+`{"time":"2026-03-01T14:00:00Z","msg":"retry","class":"conn`)
	r := f.read(4)
	if len(r.Invocations) != 2 {
		t.Fatalf("invocations %+v", r.Invocations)
	}
	one, two := r.Invocations[0], r.Invocations[1]
	if one.Outcome != "interrupted" || *one.Exit != 130 || one.Resumed || one.Ended.Sub(one.Started) != 20*time.Second {
		t.Errorf("first %+v", one)
	}
	if two.Outcome != "" || two.Exit != nil || !two.Resumed || two.Ended.Sub(two.Started) != time.Second {
		t.Errorf("second %+v", two)
	}
	e := r.Controller.Endpoints
	if len(e) != 1 || e[0] != (report.EndpointLimit{Endpoint: "http://a", Changes: 3, Cuts: 1, Min: 32, Max: 64, Last: 53}) {
		t.Errorf("endpoints %+v", e)
	}
	if !maps.Equal(r.Controller.Reasons, map[string]int{"growth": 2, "rate_limited": 1}) || len(r.Controller.Changes) != 4 {
		t.Errorf("controller %+v", r.Controller)
	}
	if *r.Retries.Logged != 2 || *r.Retries.WaitSeconds != 2 || !maps.Equal(r.Retries.ByClass, map[string]int{"rate_limited": 1, "connection": 1}) {
		t.Errorf("retries %+v", r.Retries)
	}
	if r.Storage.Duplicates == nil || *r.Storage.Duplicates != 2 {
		t.Errorf("duplicates %v", r.Storage.Duplicates)
	}
}

// TestOpenAttempts checks that attempts without an outcome are counted as left by a killed process.
func TestOpenAttempts(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	if r := f.read(9); r.Retries.Open != nil {
		t.Error("attempts are counted without a journal")
	}
	key := func(i int) string { return fmt.Sprintf("%032x-%d", 1, i) }
	j, err := journal.Open(filepath.Join(f.dir, "journal"), journal.Config{})
	must(t, err)
	for i := range 3 {
		for n := 1; n <= 2; n++ {
			task := &collector.Task{ID: "t"}
			must(t, j.Begin(collector.Attempt{Task: task, Key: key(i), Index: i, GroupSize: 4, N: n, RunID: "r"}, "http://a"))
			if i == 0 || n == 1 {
				must(t, j.End(key(i), n, collector.ClassConnection, true))
			}
		}
	}
	must(t, j.Close())
	s := f.sample("t", 2, 4, nil, 5, 5) // done: the end of its attempt was lost
	s.Key = key(2)
	f.write(sink.Parquet)
	r := f.read(9)
	if r.Retries.Open == nil || *r.Retries.Open != 1 || len(r.Problems) != 0 {
		t.Errorf("open attempts %v, want 1; %v", r.Retries.Open, r.Problems)
	}
}

// TestLogsAreBounded checks that a report of any run keeps a bounded number of changes and points.
func TestLogsAreBounded(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	var lines []logLine
	for i := range 5000 {
		lines = append(lines,
			logLine{float64(i), "limit changed", map[string]any{"endpoint": "http://a", "from": i + 1, "to": i + 2, "reason": "growth"}},
			logLine{float64(i), "status", map[string]any{"in_flight": i}})
	}
	f.log(lines...)
	c := f.read(1).Controller
	if len(c.Changes) > 1000 || c.LeftOut+len(c.Changes) != 5000 || c.Changes[len(c.Changes)-1].To != 5001 || c.Reasons["growth"] != 5000 {
		t.Errorf("%d changes, %d left out", len(c.Changes), c.LeftOut)
	}
	if n := len(c.InFlight); n > 480 || n < 200 || c.InFlight[0].Value != 0 || c.InFlight[n-1].Value < 4900 {
		t.Errorf("%d points", n)
	}
}

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
			for _, n := range report.Notes(r) {
				if n.Mood == "warn" && strings.Contains(n.Text, "clock") {
					said = append(said, strings.ReplaceAll(n.Text, "\u00a0", " "))
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
			if m := regexp.MustCompile(` -[0-9][0-9.,]* (s|min|h)\b`).FindString(report.Text(r)); m != "" {
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
