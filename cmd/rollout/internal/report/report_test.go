package report_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/report"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/journal"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

// A small run whose every number was counted by hand, in both formats.
func TestReadCounts(t *testing.T) {
	t.Parallel()
	for _, format := range []sink.Format{sink.Parquet, sink.Arrow} {
		t.Run(format.String(), func(t *testing.T) {
			t.Parallel()
			f := newFolder(t)
			for i, reward := range []*float64{new(1.0), new(0.0), new(0.5), nil} { // 1 of 3 scored passes
				s := f.sample("a", i, 4, reward, 10*(i+1), 100)
				s.Duration, s.Working = time.Duration(i+1)*time.Second, time.Second
				s.Attempt = int32(1 + i/3)
				s.RolloutID = fmt.Sprintf("%s/%d", s.Key, s.Attempt)
			}
			for i := range 2 { // no variance, all pass
				f.sample("b", i, 4, new(2.0), 50, 200)
			}
			f.sample("c", 0, 4, new(math.NaN()), 60, 5)
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
				Planned: 16, Committed: 9, Failed: 3, Skipped: 1, Remaining: 3, Holds: true, Superseded: 1, LostCalls: 1,
			}); got != want {
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
			if got := r.Groups; got != (report.Groups{Groups: 4, Whole: 1, Scored: 2, ZeroVariance: 1, AllPass: 1}) {
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

// A sample with several rows that were cut is one, and what we cut is not what the
// engine's limit ended, nor what used up its steps.
func TestTruncatedSamples(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	const cut, length = tokenize.FlagCut, tokenize.FlagLength
	for i, flags := range [][]tokenize.Flags{{0, cut, cut}, {0, 0}, {cut}, {length}, {length, 0}, {length | cut}} {
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
		if i == 1 {
			s.Status, s.StopReason = "max_steps", "max_steps"
		}
		f.name(s, "t", i, 6)
		f.samples = append(f.samples, s)
	}
	f.write(sink.Parquet)
	r := f.read(6)
	if e := r.Truncation; e.Truncated != 5 || e.Cut != 3 || e.Length != 3 || e.MaxSteps != 1 || e.Samples != 6 {
		t.Errorf("%+v, want 5 of 6 truncated: 3 cut and 3 by length; 1 out of steps", e)
	}
	text := report.Text(r)
	for _, want := range []string{
		"ends        3 of 6 samples have a row that was cut at tokens.max_row_tokens\n",
		"            3 of 6 samples have a row whose last output the engine's limit of tokens ended\n",
		"            1 of 6 samples used up their steps\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

// A run that cut nothing is not said to have cut anything: what the engine's limit
// ended is something else.
func TestNothingWasCut(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	s := f.b.Sample()
	row := f.b.Row(10, 5)
	row.Truncated = true // as written before there was a flag for it
	row.SegmentCount = 1
	s.Rows, s.CompletionTokens = append(s.Rows, row), 5
	f.name(s, "t", 0, 1)
	f.samples = append(f.samples, s)
	f.write(sink.Parquet)
	r := f.read(1)
	var page bytes.Buffer
	if err := report.Page(&page, r); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"text": report.Text(r), "page": page.String()} {
		if strings.Contains(text, "max_row_tokens") || !strings.Contains(text, "limit of tokens ended") {
			t.Errorf("the %s blames tokens.max_row_tokens, or does not name the engine's limit:\n%s", name, text)
		}
	}
}

// The row of a slow sample is the one that rollout inspect --row shows.
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
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for s := range log.Shards(sink.KindData) {
		for row, err := range log.Rows(s) {
			if err != nil {
				t.Fatal(err)
			}
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

// The logs of several invocations, the last of which was killed in the middle of a
// line.
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
	f.put("logs/collect-0002.jsonl", readFile(t, f.dir+"/logs/collect-0002.jsonl")+`{"time":"2026-03-01T14:00:00Z","msg":"retry","class":"conn`)
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
	if r.Retries.Logged != 2 || r.Retries.WaitSeconds != 2 || !maps.Equal(r.Retries.ByClass, map[string]int{"rate_limited": 1, "connection": 1}) {
		t.Errorf("retries %+v", r.Retries)
	}
	if r.Storage.Duplicates == nil || *r.Storage.Duplicates != 2 {
		t.Errorf("duplicates %v", r.Storage.Duplicates)
	}
	if html := page(t, r); !strings.Contains(html, "killed: its log has no end") || !strings.Contains(html, "interrupted, exit 130") {
		t.Error("the page does not say how the invocations ended")
	}
}

// Samples that are durable and in no shard yet are seen, and remain.
func TestDurableSamples(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	f.sample("a", 0, 3, new(1.0), 5, 5)
	f.write(sink.Parquet)
	d, err := sink.Create(f.dir, sink.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var ended sync.WaitGroup
	ended.Go(func() { _ = d.Run(t.Context()) })
	for _, s := range []*tokenize.Sample{f.sample("a", 1, 3, new(0.0), 5, 50), f.failure("a", 2, 3, "agent_error", "x")} {
		if err := d.Append(t.Context(), s, func(error) {}); err != nil {
			t.Fatal(err)
		}
	}
	r := f.read(4)
	if c := r.Coverage; c.Committed != 1 || c.Failed != 0 || c.Remaining != 3 || c.Durable != 2 || !c.Holds || c.Empty != 0 {
		t.Errorf("coverage %+v", c)
	}
	if r.Rewards.Scored != 2 || r.Lengths.Rows != 2 || r.Lengths.Completion.Max != 50 || r.Slowest[0].Row != -2 && r.Slowest[1].Row != -2 {
		t.Errorf("the durable sample is not in the numbers: %+v", r.Rewards)
	}
	if text := report.Text(r); !strings.Contains(text, "2 of them durable and in no shard yet") {
		t.Error(text)
	}
	if err := d.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	ended.Wait()
	if c := f.read(4).Coverage; c.Committed != 2 || c.Failed != 1 || c.Durable != 0 || c.Remaining != 1 {
		t.Errorf("coverage after the commit %+v", c)
	}
}

// Attempts without an outcome are those that a killed process left.
func TestOpenAttempts(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	if r := f.read(9); r.Retries.Open != nil {
		t.Error("attempts are counted without a journal")
	}
	key := func(i int) string { return fmt.Sprintf("%032x-%d", 1, i) }
	j, err := journal.Open(filepath.Join(f.dir, "journal"), journal.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		for n := 1; n <= 2; n++ {
			task := &collector.Task{ID: "t"}
			if err := j.Begin(collector.Attempt{Task: task, Key: key(i), Index: i, GroupSize: 4, N: n, RunID: "r"}, "http://a"); err != nil {
				t.Fatal(err)
			}
			if i == 0 || n == 1 {
				if err := j.End(key(i), n, collector.ClassConnection, true); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	s := f.sample("t", 2, 4, nil, 5, 5) // it is done: the end of its attempt got lost
	s.Key = key(2)
	f.write(sink.Parquet)
	r := f.read(9)
	if r.Retries.Open == nil || *r.Retries.Open != 1 || len(r.Problems) != 0 {
		t.Errorf("open attempts %v, want 1; %v", r.Retries.Open, r.Problems)
	}
	if !strings.Contains(page(t, r), "1 attempts were begun and have no outcome yet") {
		t.Error("the page does not say so")
	}
}

// What the tail policy never began is skipped, until a later process takes it up.
func TestUnstarted(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	f.log(logLine{0, "launch", nil}, logLine{9, "tail", map[string]any{"policy": "deadline=1m0s", "unstarted": 3}}, logLine{10, "end", nil})
	if c := f.read(10).Coverage; c.Skipped != 3 || c.Unstarted != 3 || c.Remaining != 7 {
		t.Errorf("coverage %+v", c)
	}
	f.log(logLine{20, "launch", map[string]any{"resumed": true}})
	if c := f.read(10).Coverage; c.Skipped != 0 || c.Remaining != 10 {
		t.Errorf("coverage of the resumed run %+v", c)
	}
}

// However long a run is, the report keeps a bounded number of changes and points.
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

// What a model, a task or a server wrote is text on the page and nothing else.
func TestPageEscapes(t *testing.T) {
	t.Parallel()
	const evil = `<script>alert(1)</script>"><img src=x onerror=alert(2)>'&amp;{{.}}]]>--><style>*{display:none}</style>`
	f := newFolder(t)
	f.sample(evil, 0, 1, new(1.0), 5, 5).StopReason = evil
	f.failure("b", 0, 1, evil, evil)
	f.write(sink.Parquet)
	f.log(logLine{0, "limit changed", map[string]any{"endpoint": evil, "from": 0, "to": 3, "reason": "start"}},
		logLine{9, "limit changed", map[string]any{"endpoint": evil, "from": 3, "to": 4, "reason": evil}},
		logLine{9, "limit changed", map[string]any{"endpoint": "b", "from": 3, "to": 4, "reason": evil}},
		logLine{9, "retry", map[string]any{"class": evil}}, logLine{10, "end", map[string]any{"outcome": evil}})
	r := f.read(2)
	r.Model, r.Servers, r.RunID, r.Problems = evil, []string{evil}, evil, []string{evil}
	html := page(t, r)
	for _, bad := range []string{"<script", "<img", "onerror=alert(2)>'&amp;{{.}}]]>--><", "<style>*"} {
		if strings.Contains(html, bad) {
			t.Errorf("%q is in the page", bad)
		}
	}
	if n := strings.Count(html, "&lt;script&gt;"); n < 8 {
		t.Errorf("the text is shown %d times: the test looks at too little", n)
	}
	if n := strings.Count(html, "<style>"); n != 1 {
		t.Errorf("%d style elements", n)
	}
}

// The page asks for nothing, runs nothing, and its policy allows its own style only.
func TestPageStandsAlone(t *testing.T) {
	t.Parallel()
	html := page(t, bigRun(t).read(1200))
	style := regexp.MustCompile(`(?s)<style>(.*?)</style>`).FindStringSubmatch(html)
	if style == nil {
		t.Fatal("no style")
	}
	digest := sha256.Sum256([]byte(style[1]))
	if policy := "default-src &#39;none&#39;; style-src &#39;sha256-" + base64.StdEncoding.EncodeToString(digest[:]); !strings.Contains(html, strings.ReplaceAll(policy, "+", "&#43;")) {
		t.Errorf("the policy does not allow the style that is there: want %s", policy)
	}
	if m := regexp.MustCompile(`(?i)<(script|link|img|iframe|object|embed|base|form)|\s(src|href|style|on[a-z]+)=|@import|url\(|javascript:`).FindString(html); m != "" {
		t.Errorf("%q is in the page", m)
	}
	for _, m := range regexp.MustCompile(`https?://[^"<\s]+`).FindAllString(html, -1) {
		if m != "http://www.w3.org/2000/svg" && !strings.HasPrefix(m, "http://10.0.0.") && m != "http://127.0.0.1:8283" {
			t.Errorf("address %s", m)
		}
	}
	if n := strings.Count(html, `<svg class="plot"`); n != 10 {
		t.Errorf("%d plots, want 10", n)
	}
	if m := regexp.MustCompile(`NaN|Inf\b|%!|<no value>|&lt;nil&gt;`).FindString(html); m != "" {
		t.Errorf("%q is in the page", m)
	}
	if regexp.MustCompile(`#[0-9a-fA-F]{3,8}"|rgb\(`).MatchString(html[strings.Index(html, "</style>"):]) {
		t.Error("a colour stands outside of the style sheet: it would not follow dark and light")
	}
}

// Every drawing is well-formed XML, and every class that it uses has a colour.
func TestPlots(t *testing.T) {
	t.Parallel()
	html := page(t, bigRun(t).read(1200))
	css := html[:strings.Index(html, "</style>")]
	for _, svg := range regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(html, -1) {
		d := xml.NewDecoder(strings.NewReader(svg))
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%v in %.200s", err, svg)
			}
			e, ok := token.(xml.StartElement)
			if !ok || e.Name.Local == "svg" {
				continue
			}
			for _, a := range e.Attr {
				if a.Name.Local != "class" {
					continue
				}
				names := strings.Fields(a.Value)
				selectors := []string{"." + strings.Join(names, ".") + " {"}
				switch {
				case e.Name.Local == "text":
					selectors = nil
					for _, name := range names {
						selectors = append(selectors, "text."+name+" {")
					}
				case len(names) == 1:
					selectors = []string{".bar ." + names[0] + " {"}
				}
				for _, selector := range selectors {
					if !strings.Contains(css, selector) {
						t.Errorf("<%s class=%q> has no rule %q", e.Name.Local, a.Value, selector)
					}
				}
			}
		}
	}
}

// A run that has nothing yet says so in words, without a plot and without a number
// that nobody measured.
func TestEmptyRun(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	r := f.read(40)
	html := page(t, r)
	for _, want := range []string{"No rewards", "No rows", "No sample has ended", "There are no logs", "The run has no logs", "not recorded"} {
		if !strings.Contains(html, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	if strings.Contains(html, `class="plot"`) {
		t.Error("a plot of nothing")
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, absent := range []string{`"all"`, `"pass_at_k"`, `"throughput"`, `"total"`, `"by_class"`, `"tail_bias"`, `"duplicates_refused"`} {
		if strings.Contains(string(b), absent) {
			t.Errorf("report.json holds %s", absent)
		}
	}
	if text := report.Text(r); !strings.Contains(text, "no sample was scored") {
		t.Error(text)
	}
}

// A shard that cannot be read is named, and the rest is counted.
func TestDamagedShard(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	f.sample("a", 0, 2, new(1.0), 5, 5)
	f.write(sink.Parquet)
	log, err := sink.ReadLog(f.dir)
	if err != nil {
		t.Fatal(err)
	}
	damaged := log.Commits[0].Shards[0].Path
	f.sample("a", 1, 2, new(1.0), 5, 5)
	f.write(sink.Parquet)
	f.put(damaged, "not parquet")
	r := f.read(2)
	if len(r.Problems) != 1 || !strings.Contains(r.Problems[0], damaged) || r.Lengths.Rows != 1 || r.Coverage.Committed != 2 {
		t.Errorf("problems %v, %d rows", r.Problems, r.Lengths.Rows)
	}
	if r.Slowest[0].Row != 1 {
		t.Errorf("row %d, want 1: the row before it cannot be read, and has its number", r.Slowest[0].Row)
	}
	if !strings.Contains(page(t, r), damaged) {
		t.Error("the page does not name the shard")
	}
}

// More samples than were planned is said, not hidden.
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

// Every class that a sample can fail with has an advice of its own.
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

// TestGateReportMemory: tokens are not read, so a run of many tokens needs little
// more than one of few.
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
	if many > 3*few {
		t.Errorf("%d bytes allocated, %d with a thousandth of the tokens", many, few)
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
