package report_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/report"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/tokenize"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

type folder struct {
	t       *testing.T
	dir     string
	b       *sinktest.Builder
	samples []*tokenize.Sample
	logs    int
}

func newFolder(t *testing.T) *folder {
	t.Helper()
	return &folder{t: t, dir: t.TempDir(), b: sinktest.NewBuilder(5)}
}

// sample adds a sample of one row with the given numbers of prompt and sampled tokens.
func (f *folder) sample(task string, index, size int, reward *float64, prompt, sampled int) *tokenize.Sample {
	s := f.b.Sample(f.b.Row(prompt, sampled))
	f.name(s, task, index, size)
	s.Reward = reward
	f.samples = append(f.samples, s)
	return s
}

func (f *folder) failure(task string, index, size int, class, text string) *tokenize.Sample {
	s := f.b.Failure(0)
	f.name(s, task, index, size)
	s.Failures[0].Class, s.Failures[0].Stage, s.Failures[0].Reason, s.Failures[0].Error = class, "run", "", text
	f.samples = append(f.samples, s)
	return s
}

func (f *folder) name(s *tokenize.Sample, task string, index, size int) {
	s.TaskID, s.GroupID, s.Index, s.GroupSize = task, "g-"+task, int32(index), int32(size)
	s.Key = fmt.Sprintf("%s-%d", s.GroupID, index)
	s.RolloutID = fmt.Sprintf("%s/%d", s.Key, s.Attempt)
	s.StartedAt = epoch
}

func (f *folder) write(format sink.Format) {
	f.t.Helper()
	sinktest.Write(f.t, f.dir, sink.Config{Format: format}, f.samples)
	f.samples = nil
}

// log writes the log of one invocation. A line has a time in seconds after epoch, a message and
// attributes.
func (f *folder) log(lines ...logLine) {
	f.t.Helper()
	f.logs++
	var text strings.Builder
	for _, l := range lines {
		m := map[string]any{"time": epoch.Add(time.Duration(l.at * float64(time.Second))), "level": "INFO", "msg": l.msg}
		maps.Copy(m, l.attrs)
		b, err := json.Marshal(m)
		must(f.t, err)
		text.Write(append(b, '\n'))
	}
	f.put(fmt.Sprintf("logs/collect-%04d.jsonl", f.logs), text.String())
}

type logLine struct {
	at    float64
	msg   string
	attrs map[string]any
}

func (f *folder) put(name, text string) {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	must(f.t, os.MkdirAll(filepath.Dir(path), 0o777))
	must(f.t, os.WriteFile(path, []byte(text), 0o666))
}

func (f *folder) read(planned int) *report.Report {
	f.t.Helper()
	r, err := report.Read(f.dir, report.Run{
		ID: "20260301-120000-0badcafe", CreatedAt: epoch, Now: epoch.Add(time.Hour), Planned: planned, Tasks: planned / 4,
		Model: "sglang//models/qwen3", Servers: []string{"http://127.0.0.1:8283"}, Program: "v1", Pass: report.DefaultPass,
	})
	must(f.t, err)
	return r
}

// page returns the data of the page, as JSON without escapes of HTML.
func page(t *testing.T, r *report.Report) string {
	t.Helper()
	var data any
	must(t, json.Unmarshal([]byte(dataOf(t, wholePage(t, r))), &data))
	text, err := format.JSONLine(data)
	must(t, err)
	return string(text)
}

func wholePage(t *testing.T, r *report.Report) string {
	t.Helper()
	var b strings.Builder
	must(t, report.Page(&b, "run1", r))
	return b.String()
}

// dataOf returns the data of a page.
func dataOf(t *testing.T, html string) string {
	t.Helper()
	_, rest, _ := strings.Cut(html, `id="data">`)
	data, _, ok := strings.Cut(rest, "</script>")
	if !ok {
		t.Fatal("the page has no data")
	}
	return data
}

// bigRun returns a run that uses every feature of a report.
func bigRun(t *testing.T) *folder {
	t.Helper()
	f := newFolder(t)
	rng := rand.New(rand.NewPCG(1, 2))
	at := 0.0
	for task := range 150 {
		skill := rng.Float64()
		for i := range 8 {
			at += rng.Float64() * 3
			name := fmt.Sprintf("gsm8k-train-%05d", task)
			seconds := 4 + 30*math.Exp(rng.NormFloat64()*.7)
			if rng.IntN(14) == 0 {
				class := []string{"timeout_total", "connection", "agent_error", "no_prompt"}[rng.IntN(4)]
				s := f.failure(name, i, 8, class, `<script>alert("pwned by a model")</script> & more: `+class)
				s.StartedAt, s.Duration = epoch.Add(time.Duration(at*1e9)), time.Duration(seconds*1e9)
				continue
			}
			var reward *float64
			if rng.IntN(40) > 0 {
				reward = new(0.0)
				if rng.Float64() < skill {
					reward = new(1.0)
				}
			}
			s := f.sample(name, i, 8, reward, 180+rng.IntN(400), 50+int(400*math.Exp(rng.NormFloat64()*.6)))
			s.StartedAt = epoch.Add(time.Duration(at * 1e9))
			s.Duration = time.Duration(seconds * 1e9)
			s.Working = time.Duration(seconds * 0.8 * 1e9)
			if rng.IntN(10) == 0 {
				s.Status, s.StopReason = "truncated", "max_tokens_exceeded"
			}
			if rng.IntN(12) == 0 {
				s.Attempt = 2
				s.RolloutID = s.Key + "/2"
			}
		}
	}
	f.write(sink.Parquet)
	var lines []logLine
	lines = append(lines, logLine{0, "launch", map[string]any{"run_id": "x", "resumed": false, "planned": 1200}})
	limit := map[string]int{"http://10.0.0.1:8283": 32, "http://10.0.0.2:8283": 32}
	endpoints := slices.Sorted(maps.Keys(limit)) // sorted, so that the run is always the same
	for _, e := range endpoints {
		n := limit[e]
		lines = append(lines, logLine{0, "limit changed", map[string]any{"endpoint": e, "from": 0, "to": n, "reason": "start"}})
	}
	for s := 0.0; s < at; s += 10 {
		lines = append(lines, logLine{s, "status", map[string]any{"in_flight": limit["http://10.0.0.1:8283"] + limit["http://10.0.0.2:8283"] - rng.IntN(6)}})
		for _, e := range endpoints {
			n := limit[e]
			to, reason := n+max(1, n/20), "growth"
			switch {
			case rng.IntN(12) == 0:
				to, reason = n*8/10, "rate_limited"
				lines = append(lines, logLine{s, "retry", map[string]any{"class": "rate_limited", "delay_s": 2.5}})
			case rng.IntN(3) > 0:
				continue
			}
			lines = append(lines, logLine{s, "limit changed", map[string]any{"endpoint": e, "from": n, "to": to, "reason": reason}})
			limit[e] = to
		}
	}
	half := len(lines) / 2
	f.log(lines[:half]...)
	rest := append([]logLine{{lines[half].at, "launch", map[string]any{"resumed": true, "planned": 1200}}}, lines[half:]...)
	f.log(append(rest, logLine{at, "end", map[string]any{"outcome": "finished", "exit": 4, "duplicates_refused": 0}})...)
	return f
}

// must fails the test at err.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
