package report_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/report"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/tokenize"
)

// TestReadCounts compares the report of a small run with numbers counted by hand, in both formats.
func TestReadCounts(t *testing.T) {
	t.Parallel()
	for _, format := range []sink.Format{sink.Parquet, sink.Arrow} {
		t.Run(format.String(), func(t *testing.T) {
			t.Parallel()
			f := newFolder(t)
			for i, reward := range []*float64{new(1.0), new(0.0), new(0.5), nil} { // 1 of 3 scored samples passes
				s := f.sample("a", i, 4, reward, 10*(i+1), 100)
				s.Duration, s.Working = time.Duration(i+1)*time.Second, time.Second
				s.Attempt = int32(1 + i/3)
				s.RolloutID = fmt.Sprintf("%s/%d", s.Key, s.Attempt)
			}
			for i := range 2 { // no variance, all pass
				f.sample("b", i, 4, new(2.0), 50, 200)
			}
			f.sample("c", 0, 4, nil, 60, 5)
			f.failure("b", 2, 4, "no_prompt", "first words")
			f.failure("b", 3, 4, "no_prompt", "other words")
			f.failure("c", 1, 4, "agent_error", "oops")
			f.failure("c", 2, 4, "censored", "cut by the tail policy").Duration = 9 * time.Second
			f.failure("c", 3, 4, "connection", "will succeed later")
			lost := f.sample("d", 0, 4, new(0.0), 70, 5)
			lost.Failures = []tokenize.Failure{{Class: "no_prompt", Stage: "prompt", Reason: "compacted", Call: 3}}
			f.write(format)
			f.sample("c", 3, 4, new(0.0), 60, 5)
			f.write(format)

			r := f.read(16)
			if got, want := r.Coverage, (report.Coverage{
				Planned: 16, Committed: 9, Failed: 3, Skipped: 1, Remaining: 3, Holds: true, Superseded: 1, LostCalls: 1, Durable: new(0),
			}); !reflect.DeepEqual(got, want) {
				t.Errorf("coverage %+v, want %+v", got, want)
			}
			if r.State != "incomplete" {
				t.Errorf("state %s", r.State)
			}
			var classes []string
			for _, c := range r.Failures.Classes {
				classes = append(classes, fmt.Sprint(c.Class, c.Samples))
			}
			if got := strings.Join(classes, " "); got != "no_prompt2 agent_error1" {
				t.Errorf("failures %s", got)
			}
			if !maps.Equal(r.Failures.Reasons, map[string]int{"compacted": 1}) {
				t.Errorf("reasons %v", r.Failures.Reasons)
			}
			w := r.Rewards
			if w.Scored != 7 || w.Unscored != 2 || w.Passed != 3 || math.Abs(w.All.Mean-5.5/7) > 1e-12 || w.All.Min != 0 || w.All.Max != 2 {
				t.Errorf("rewards %+v, all %+v", w, w.All)
			}
			// Groups a (3 scored, 1 passes), b (2, 2), c (1, 0), d (1, 0).
			want := []report.PassAtK{{K: 1, Value: (1/3.0 + 1 + 0 + 0) / 4, Groups: 4}, {K: 2, Value: (2/3.0 + 1) / 2, Groups: 2}}
			if len(w.PassAtK) != 2 {
				t.Fatalf("pass@k %v", w.PassAtK)
			}
			for i, k := range w.PassAtK {
				if k.K != want[i].K || k.Groups != want[i].Groups || math.Abs(k.Value-want[i].Value) > 1e-12 {
					t.Errorf("pass@k %v, want %v", k, want[i])
				}
			}
			got := r.Groups
			got.Hardest = nil
			if !reflect.DeepEqual(got, report.Groups{Groups: 4, Whole: 1, Scored: 2, ZeroVariance: 1, AllPass: 1}) {
				t.Errorf("groups %+v", got)
			}
			if a := w.ByAttempt; len(a) != 2 || a[0].Samples != 8 || a[0].Scored != 7 || a[1].Samples != 1 || a[1].Mean != nil {
				t.Errorf("by attempt %+v", a)
			}
			if l := r.Lengths; l.Rows != 9 || l.Prompt.Max != 70 || l.Completion.P50 != 100 || l.Sequence.Max != 250 || l.RowsPer.Mean != 1 {
				t.Errorf("lengths %+v %+v", l.Prompt, l.Sequence)
			}
			if d := r.Time.Total; d.Count != 9 || d.Max != 4 || d.P50 != 1.5 {
				t.Errorf("time %+v", d)
			}
			if r.Slowest[0].TaskID != "a" || r.Slowest[0].Index != 3 || r.Slowest[0].Seconds != 4 || len(r.Slowest) != 12 {
				t.Errorf("slowest of %d: %+v", len(r.Slowest), r.Slowest[0])
			}
			if r.Tail == nil || r.Tail.Kept.Samples != 9 || r.Tail.Cut.Samples != 1 || r.Tail.Cut.Seconds.Mean != 9 {
				t.Errorf("tail %+v", r.Tail)
			}
			if r.Storage.Tokens != int64(10+20+30+40+4*100+2*250+65+75+65) || r.Storage.DataBytes == 0 || r.Storage.Commits != 2 {
				t.Errorf("storage %+v", r.Storage)
			}
			if r.Throughput == nil || r.Controller.Changes != nil || r.Retries.ByClass != nil || r.Storage.Duplicates != nil {
				t.Error("a number was made up, or one is missing")
			}
		})
	}
}

// TestBalance checks that a report shows the terms of the sampled tokens if a token is not trained,
// and that a call that was left untrained on purpose counts neither as failed nor as quarantined.
func TestBalance(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{"no_ids", "superseded"} {
		f := newFolder(t)
		s := f.sample("a", 0, 1, nil, 10, 100)
		s.Failures = []tokenize.Failure{{Class: "untrained", Stage: "prompt", Reason: reason, Call: 3, OutputIDs: make([]int32, 7), Logprobs: make([]float32, 7)}}
		f.write(sink.Parquet)
		r := f.read(1)
		want, terms := "107 sampled tokens = 100 trained + 7 superseded", tokenize.NewBalance(100, 0, 0, tokenize.LostTokens{Superseded: 7})
		lost, untrained := 0, 1
		if reason == "no_ids" {
			want, terms = "107 sampled tokens = 100 trained + 7 quarantined", tokenize.NewBalance(100, 0, 0, tokenize.LostTokens{Quarantined: 7})
			lost, untrained = 1, 0
		}
		all := report.Text(r) + page(t, r)
		if r.Balance == nil || *r.Balance != terms || r.Coverage.LostCalls != lost || r.Coverage.UntrainedCalls != untrained || r.Failures.Reasons[reason] != lost {
			t.Errorf("%s: %+v %+v %v", reason, r.Balance, r.Coverage, r.Failures.Reasons)
		}
		if strings.Count(all, want) != 2 {
			t.Errorf("%q is not in the text and in the page:\n%s", want, all)
		}
	}
}

// TestTruncatedSamples checks that a sample with several cut rows counts once, and that rows cut by
// us, ended by the engine's limit, or out of steps are counted separately.
func TestTruncatedSamples(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	const cut, length = tokenize.FlagCut, tokenize.FlagLength
	add := func(f *folder, i, of int, flags ...tokenize.Flags) *tokenize.Sample {
		s := f.b.Sample()
		for _, flag := range flags {
			row := f.b.Row(10, 5)
			if row.Flags, row.Truncated = flag, flag != 0; flag&length != 0 {
				row.FinishReasons[len(row.FinishReasons)-1] = tokenize.FinishLength
			}
			row.SegmentIndex, row.SegmentCount = int32(len(s.Rows)), int32(len(flags))
			s.Rows = append(s.Rows, row)
			s.CompletionTokens += 5
		}
		f.name(s, "t", i, of)
		f.samples = append(f.samples, s)
		return s
	}
	for i, flags := range [][]tokenize.Flags{{0, cut, cut}, {0, 0}, {cut}, {length}, {length, 0}, {length | cut}} {
		if s := add(f, i, 6, flags...); i == 1 {
			s.Status, s.StopReason = "max_steps", "max_steps"
		}
	}
	f.write(sink.Parquet)
	r := f.read(6)
	if e := r.Truncation; e.Truncated != 5 || e.Cut != 3 || e.Length != 3 || e.MaxSteps != 1 || e.Samples != 6 {
		t.Errorf("%+v, want 5 of 6 truncated: 3 cut and 3 by length; 1 out of steps", e)
	}
	text := report.Text(r)
	for _, want := range []string{
		"ends        3 of 6 samples have a row that was cut at tokens.max_row_tokens\n",
		"            3 of 6 samples have a row whose last output ended at the engine's token limit\n",
		"            1 of 6 samples used all their steps\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	// A row that ended at the engine's limit is not reported as cut.
	f = newFolder(t)
	add(f, 0, 1, length)
	f.write(sink.Parquet)
	r = f.read(1)
	if text := report.Text(r); strings.Contains(text, "max_row_tokens") || !strings.Contains(text, "ended at the engine") {
		t.Errorf("the text blames tokens.max_row_tokens, or does not name the engine's limit:\n%s", text)
	}
}

// TestSlowestRows checks that the row number of a slow sample is the one for rollout inspect --row.
func TestSlowestRows(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	for i := range 3 {
		s := f.b.Sample(f.b.Row(5, 5), f.b.Row(5, 5)) // two rows each
		f.name(s, "t", i, 3)
		s.Duration = time.Duration(i+1) * time.Second
		f.samples = append(f.samples, s)
		f.write(sink.Parquet)
	}
	log, err := sink.ReadLog(f.dir)
	must(t, err)
	var keys []string
	for s := range log.Shards(sink.KindData) {
		for row, err := range log.Rows(s) {
			must(t, err)
			keys = append(keys, row.SampleKey)
		}
	}
	slow := f.read(3).Slowest
	if len(slow) != 3 {
		t.Fatalf("%d samples", len(slow))
	}
	for i, s := range slow {
		if s.Index != 2-i || keys[s.Row] != s.SampleKey || s.Row%2 != 0 {
			t.Errorf("%+v is at row %d of %v", s, s.Row, keys)
		}
	}
}

// TestDurableSamples checks that samples without a shard are reported, and count as remaining.
func TestDurableSamples(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	f.sample("a", 0, 3, new(1.0), 5, 5)
	f.write(sink.Parquet)
	d, err := sink.Create(f.dir, sink.Config{})
	must(t, err)
	var ended sync.WaitGroup
	ended.Go(func() { _ = d.Run(t.Context()) })
	for _, s := range []*tokenize.Sample{f.sample("a", 1, 3, new(0.0), 5, 50), f.failure("a", 2, 3, "agent_error", "x")} {
		must(t, d.Append(t.Context(), s, func(error) {}))
	}
	r := f.read(4)
	if c := r.Coverage; c.Committed != 1 || c.Failed != 0 || c.Remaining != 3 || *c.Durable != 2 || !c.Holds || c.Empty != 0 {
		t.Errorf("coverage %+v", c)
	}
	if r.Rewards.Scored != 2 || r.Lengths.Rows != 2 || r.Lengths.Completion.Max != 50 || r.Slowest[0].Row != -2 && r.Slowest[1].Row != -2 {
		t.Errorf("the durable sample is not in the numbers: %+v", r.Rewards)
	}
	if text := report.Text(r); !strings.Contains(text, "2 of them durable but not yet in a shard") {
		t.Error(text)
	}
	must(t, d.Close(t.Context()))
	ended.Wait()
	if c := f.read(4).Coverage; c.Committed != 2 || c.Failed != 1 || *c.Durable != 0 || c.Remaining != 1 {
		t.Errorf("coverage after the commit %+v", c)
	}
}

// TestUnstarted checks that samples that the tail policy did not start are skipped until a later
// process collects them.
func TestUnstarted(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	f.log(logLine{0, "launch", nil}, logLine{9, "tail", map[string]any{"policy": "deadline=1m0s", "unstarted": 3}}, logLine{10, "end", nil})
	if c := f.read(10).Coverage; c.Skipped != 3 || *c.Unstarted != 3 || c.Remaining != 7 {
		t.Errorf("coverage %+v", c)
	}
	f.log(logLine{20, "launch", map[string]any{"resumed": true}})
	if c := f.read(10).Coverage; c.Skipped != 0 || c.Remaining != 10 {
		t.Errorf("coverage of the resumed run %+v", c)
	}
}

// TestEmptyRun checks that a run without data has no unmeasured numbers.
// The rows of a copy are older than the copy, and nothing else was planned for it.
func TestCopiedRun(t *testing.T) {
	t.Parallel()
	for _, copied := range []bool{false, true} {
		f := newFolder(t)
		f.sample("a", 0, 1, new(1.0), 5, 5)
		f.write(sink.Parquet)
		r, err := report.Read(f.dir, report.Run{CreatedAt: epoch.Add(time.Hour), Now: epoch.Add(time.Hour), Copied: copied, Pass: report.DefaultPass})
		must(t, err)
		var notes strings.Builder
		for _, n := range report.Notes(r) {
			notes.WriteString(n.Text + "\n")
		}
		c := r.Coverage
		complete := c.Planned == 1 && c.Holds && r.State == "complete"
		if text := notes.String(); complete != copied || strings.Contains(text, "clock") == copied || strings.Contains(text, "than were planned") == copied {
			t.Errorf("copied=%t: %+v, %s", copied, c, text)
		}
	}
}

func TestEmptyRun(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	r := f.read(40)
	b, err := json.Marshal(r)
	must(t, err)
	for _, absent := range []string{`"all"`, `"pass_at_k"`, `"throughput"`, `"total"`, `"by_class"`, `"tail_bias"`, `"duplicates_refused"`} {
		if strings.Contains(string(b), absent) {
			t.Errorf("report.json holds %s", absent)
		}
	}
	if text := report.Text(r); !strings.Contains(text, "no sample was scored") {
		t.Error(text)
	}
}

// TestDamagedShard checks that an unreadable shard is named and the others are counted.
func TestDamagedShard(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	f.sample("a", 0, 2, new(1.0), 5, 5)
	f.write(sink.Parquet)
	log, err := sink.ReadLog(f.dir)
	must(t, err)
	damaged := log.Commits[0].Shards[0].Path
	f.sample("a", 1, 2, new(1.0), 5, 5)
	f.write(sink.Parquet)
	f.put(damaged, "not parquet")
	r := f.read(2)
	if len(r.Problems) != 1 || !strings.Contains(r.Problems[0], damaged) || r.Lengths.Rows != 1 || r.Coverage.Committed != 2 || r.Coverage.Empty != 0 {
		t.Errorf("problems %v, %d rows, coverage %+v", r.Problems, r.Lengths.Rows, r.Coverage)
	}
	if r.Slowest[0].Row != 1 {
		t.Errorf("row %d, want 1: the row before it cannot be read, and has its number", r.Slowest[0].Row)
	}
	if !strings.Contains(page(t, r), damaged) {
		t.Error("the page does not name the shard")
	}
}

// TestIdentityThatDoesNotHold checks that more samples than planned are reported.
func TestIdentityThatDoesNotHold(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	f.sample("a", 0, 2, nil, 5, 5)
	f.sample("a", 1, 2, nil, 5, 5)
	f.write(sink.Parquet)
	r := f.read(1)
	if r.Coverage.Holds || !strings.Contains(page(t, r), "more samples than were planned") {
		t.Errorf("coverage %+v", r.Coverage)
	}
}

// TestAdvice checks that every class that a sample can fail with has its own advice.
func TestAdvice(t *testing.T) {
	t.Parallel()
	other := report.Advice("no such class")
	for _, c := range collector.Classes() {
		switch c {
		case collector.ClassCancelled, collector.ClassAuth, collector.ClassUnusable, collector.ClassStorage, collector.ClassCensored:
			continue // no sample fails with it
		}
		if report.Advice(c.String()) == other {
			t.Errorf("no advice for %s", c)
		}
	}
}

// TestGateReportMemory checks that memory does not depend on tokens, because they are not read.
func TestGateReportMemory(t *testing.T) {
	measure := func(sampled int) uint64 {
		f := newFolder(t)
		for i := range 400 {
			f.sample(fmt.Sprint("t", i), 0, 1, new(1.0), 10, sampled)
		}
		f.write(sink.Parquet)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f.read(400)
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	few, many := measure(10), measure(10_000)
	t.Logf("%d kB allocated with 4 thousand tokens, %d kB with 4 million", few>>10, many>>10)
	if many > 4*few {
		t.Errorf("%d bytes allocated, %d with a thousandth of the tokens", many, few)
	}
}

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
	if got, want := r.Coverage, (report.Coverage{Planned: 12, Committed: 2, Filtered: 4, Failed: 1, Skipped: 2, Late: 1, Remaining: 3, Durable: new(0), Holds: true}); !reflect.DeepEqual(got, want) {
		t.Errorf("coverage %+v, want %+v", got, want)
	}
	if want := map[string]int{"reward_std": 3, "mine": 1}; !maps.Equal(r.Filtered, want) {
		t.Errorf("filtered by %v, want %v", r.Filtered, want)
	}
	if text := report.Text(r); !strings.Contains(text, "filtered            4  33.3 %, with keep=false: reward_std 3, mine 1\n") {
		t.Errorf("the text lacks the filtered groups:\n%s", text)
	}
	f = newFolder(t)
	f.sample("a", 0, 1, nil, 10, 20)
	f.write(sink.Arrow)
	r = f.read(1)
	if r.Filtered != nil || strings.Contains(report.Text(r), "filtered") {
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

	f = newFolder(t)
	f.log(logLine{0, "launch", nil}, logLine{10, "status", map[string]any{"in_flight": 1}}, end)
	if r := f.read(0); r.Lag != nil || strings.Contains(report.Text(r), "lag") || strings.Contains(page(t, r), "policy_lag") {
		t.Error("a run without lags reports lags")
	}
}

// TestTakeOver checks that the report of an unchanged dataset is reused without reading a row, and
// that damage and new data are noticed.
func TestTakeOver(t *testing.T) {
	f := bigRun(t)
	run := report.Run{CreatedAt: epoch, Now: epoch.Add(time.Hour), Planned: 1200, Tasks: 150, Program: "v1", Pass: report.DefaultPass}
	read := func() (*report.Report, string) {
		t.Helper()
		r, err := report.Read(f.dir, run)
		must(t, err)
		b, err := json.Marshal(r)
		must(t, err)
		return r, string(b)
	}
	first, text := read()
	if first.Basis == "" {
		t.Fatal("no basis")
	}
	take := func(passed int) {
		t.Helper()
		run.Last = new(report.Report)
		must(t, json.Unmarshal([]byte(text), run.Last))
		run.Last.Rewards.Passed = passed
	}
	take(first.Rewards.Passed)
	again, same := read()
	if same != text {
		t.Errorf("taken over:\n%s\nwant\n%s", same, text)
	}
	if got, want := page(t, again), page(t, first); got != want {
		t.Error("the page is another one")
	}
	const mark = 123456
	take(mark) // no row has this value
	if r, _ := read(); r.Rewards.Passed != mark {
		t.Error("the rows were read again")
	}
	for name, change := range map[string]func(){
		"planned": func() { run.Planned++ },
		"pass":    func() { run.Pass = .5 },
		"program": func() { run.Program = "v2" },
	} {
		was := run
		change()
		if r, _ := read(); r.Rewards.Passed == mark {
			t.Errorf("%s: the last report was taken over", name)
		}
		run = was
	}
	shards, err := filepath.Glob(filepath.Join(f.dir, "data", "*.parquet"))
	if err != nil || len(shards) == 0 {
		t.Fatal(shards, err)
	}
	whole, err := os.ReadFile(shards[0])
	must(t, err)
	broken := bytes.Clone(whole)
	broken[len(broken)/2] ^= 1
	must(t, os.WriteFile(shards[0], broken, 0o666))
	if r, _ := read(); len(r.Damage) != 1 || r.Rewards.Passed == mark || r.Basis != "" {
		t.Errorf("a damaged shard: %v, basis %q", r.Damage, r.Basis)
	}
	must(t, os.WriteFile(shards[0], whole, 0o666))
	f.sample("one-more", 0, 1, nil, 10, 10)
	f.write(sink.Parquet)
	if r, _ := read(); r.Rewards.Passed == mark || r.Coverage.Committed != first.Coverage.Committed+1 {
		t.Errorf("one more sample: %d committed, had %d", r.Coverage.Committed, first.Coverage.Committed)
	}
}
