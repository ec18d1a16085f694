package show

import (
	"bytes"
	"context"
	"flag"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/picturetest"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
)

// midway returns a half-finished run with everything that can be shown.
func midway() View {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	return View{
		Stats: collector.Stats{
			Planned: 2000, Committed: 800, Accepted: 190, Failed: 10, Remaining: 1190, InFlight: 47, Retries: 12,
			FailedByClass: map[collector.Class]int{collector.ClassUnavailable: 9, collector.ClassConnection: 3, collector.ClassTokenMismatch: 8},
			Endpoints:     []collector.EndpointStats{{Name: "http://one", InFlight: 24, Limit: 24, Max: 24}, {Name: "http://two", InFlight: 23, Limit: 24, Max: 24, Down: true}},
			Oldest: &collector.InFlight{
				TaskID: "task\x1b[31m", Index: 3, Attempt: 2, Endpoint: "http://two", Stage: collector.StageRun,
				Since: now.Add(-12 * time.Second), Started: now.Add(-95 * time.Second),
			},
		},
		Sink: sink.Stats{Shards: 3, Bytes: 12_345_678}, Now: now, rate: 48.2, tokens: 1_234_567,
		Failing: map[string]int{"token_mismatch": 8, "agent_error": 5},
	}
}

func TestViewBlock(t *testing.T) {
	t.Parallel()
	v := midway()
	got := strings.Join(v.block(80, false), "\n")
	want := strings.TrimPrefix(`
  1,000/2,000  ████████████████████░░░░░░░░░░░░░░░░░░░░  50.0%  20.7s left
  in flight 47/48   48.2 samples/s   1.23M tokens/s   3 shards, 12.3 MB
  failed 13   token_mismatch 8, agent_error 5
  retries 12   unavailable 9, connection 3
  http://two does not answer
  oldest task\u001b[31m #3: run for 12.0s, attempt 2, 1m35s in total at http:/…`, "\n")
	if got != want {
		t.Errorf("block:\n%s\nwant:\n%s", got, want)
	}
	if got := v.block(40, false)[1]; got != "  in flight 47/48   48.2 samples/s" {
		t.Errorf("on a narrow terminal: %q, want whole numbers only", got)
	}
}

func TestViewLine(t *testing.T) {
	t.Parallel()
	v := midway()
	const want = "rollout: 1,000/2,000 done, in flight 47/48, 48.2 samples/s, 1.23M tokens/s, " +
		"13 failed (token_mismatch 8, agent_error 5), 12 retries, 20.7s left, oldest task\\u001b[31m #3: run for 12.0s, attempt 2, 1m35s in total at http://two"
	if got := v.line(); got != want {
		t.Errorf("line:\n%s\nwant:\n%s", got, want)
	}
	v.Draining = true
	if got := v.line(); !strings.Contains(got, ", draining: 47 left") || strings.Count(got, " left") != 1 {
		t.Errorf("draining: %s", got)
	}
}

// TestViewRewards checks that a run with a reward shows the mean over its scored samples, if any.
func TestViewRewards(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		rewards  Rewards
		unscored int
		earlier  int
		want     string
	}{
		{name: "none yet", want: "mean reward -   0 scored"},
		{name: "some", rewards: Rewards{Scored: 1234, Mean: new(0.5)}, want: "mean reward 0.500   1,234 scored"},
		{name: "below zero, not all", rewards: Rewards{Scored: 7, Mean: new(-1.0 / 3)}, unscored: 3, want: "mean reward -0.333   7 scored, 3 not scored"},
		{name: "resumed", rewards: Rewards{Scored: 7, Mean: new(123456.7)}, earlier: 5, want: "mean reward 1.235e+05   7 scored by this process"},
	} {
		v := midway()
		v.Rewards, v.Unscored, v.Earlier.Committed = &tt.rewards, tt.unscored, tt.earlier
		if got := v.block(80, false)[2]; got != "  "+tt.want {
			t.Errorf("%s: block: %q, want %q", tt.name, got, tt.want)
		}
		line := strings.Replace(tt.want, "   ", " (", 1) + ")"
		if got := v.line(); !strings.Contains(got, ", "+line+", 13 failed") {
			t.Errorf("%s: line: %q, want %q in it", tt.name, got, line)
		}
		if got := v.json(); got["scored"] != tt.rewards.Scored || got["mean_reward"] != tt.rewards.Mean || got["unscored"] != tt.unscored {
			t.Errorf("%s: json: %v", tt.name, got)
		}
	}
	v := midway()
	if got := v.json(); strings.Contains(v.line(), "reward") || got["scored"] != nil {
		t.Errorf("a run that scores nothing: %q, %v", v.line(), got)
	}
}

// TestViewOfAResumedRun checks that a resumed run that is ending shows both, and counts the grace
// time down.
func TestViewOfAResumedRun(t *testing.T) {
	t.Parallel()
	v := midway()
	v.Endpoints = []collector.EndpointStats{{Name: "http://one", InFlight: 24, Limit: 32, Max: 64}}
	v.Earlier = collector.Earlier{Committed: 700, Failed: 10}
	v.Recovery, v.Reattached, v.Gone = Recovery{Samples: 12, Open: 40}, 38, 1
	v.Failing, v.Retries, v.Oldest = nil, 0, nil
	v.Draining, v.Until = true, v.Now.Add(252*time.Second)
	got := strings.Join(v.block(92, false), "\n")
	want := strings.TrimPrefix(`
  1,000/2,000  ██████████████░░░░░░░░░░░░░░░  50.0%  draining: 47 left, at most 4m12s more
  in flight 47   48.2 samples/s   1.23M tokens/s   3 shards, 12.3 MB
  resumed   710 done before (12 from the write-ahead log), 38 of 40 in flight reattached, …`, "\n")
	if got != want {
		t.Errorf("block:\n%s\nwant:\n%s", got, want)
	}
	v.Stopping = true
	if line := v.line(); !strings.HasSuffix(line, ", stopping") {
		t.Errorf("line: %s", line)
	}
	if doneNow(v.Stats) != 290 {
		t.Errorf("done now = %d, want 290: the rate counts only this process", doneNow(v.Stats))
	}
}

// TestViewBlockFits checks that no line of the block is wider than the terminal.
func TestViewBlockFits(t *testing.T) {
	t.Parallel()
	for _, width := range []int{21, 40, 80, 200} {
		v := midway()
		v.Planned, v.Committed, v.Unscored = 123_456_789, 99_999_999, 12_345
		v.Rewards, v.Earlier.Committed = &Rewards{Scored: 12_345_678, Mean: new(-0.25)}, 1000
		for _, line := range v.block(width, false) {
			if n := utf8.RuneCountInString(line); n > width {
				t.Errorf("width %d: %d columns: %q", width, n, line)
			}
		}
	}
}

// liveDisplay returns a display with a live block on a terminal of 80 columns and 24 rows.
func liveDisplay(out io.Writer) *Display {
	q := newQueue(out)
	return &Display{mode: displayLive, out: q, talk: q, size: func() (int, int) { return 80, 24 }, now: time.Now}
}

func flush(t *testing.T, d *Display) {
	t.Helper()
	if events, messages := d.Flush(time.Minute); !events || !messages {
		t.Fatal("not everything is written")
	}
}

// TestDisplayLive checks that a display erases its live block, writes messages above it, and leaves
// no block in the history of the terminal, wherever on the screen it begins.
func TestDisplayLive(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name          string
		height, above int // rows of the terminal, and lines on it before the run
	}{
		{"first row", 24, 0},
		{"middle", 24, 10},
		{"last row", 24, 23},
		{"block as high as the terminal", 6, 0},
		{"block as high as the terminal, last row", 6, 5},
		{"two rows", 2, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			d := liveDisplay(&out)
			d.size = func() (int, int) { return 80, tt.height }
			show := func() {
				t.Helper()
				d.show(midway())
				flush(t, d)
			}
			show()
			show()
			d.Say("hello")
			show()
			d.Say("goodbye")
			show()
			d.clear()
			flush(t, d)
			above := strings.Repeat("$\n", tt.above)
			term := &terminal{width: 80, height: tt.height, rows: make([]string, tt.height)}
			term.write(t, above+out.String())
			if got, want := term.text(), above+"rollout: hello\nrollout: goodbye"; got != want {
				t.Errorf("the terminal and its history:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// TestDisplayResized is TestDisplayLive on a terminal that became narrower and wrapped the block.
func TestDisplayResized(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	width := 80
	d := liveDisplay(&out)
	d.size, d.paint = func() (int, int) { return width, 24 }, true
	v := midway()
	d.show(v)
	flush(t, d)
	rows := 0
	for _, line := range v.block(80, false) {
		rows += (utf8.RuneCountInString(line) + 29) / 30
	}
	out.Reset()
	width = 30
	d.Say("hello")
	flush(t, d)
	if got := strings.Count(out.String(), eraseRow); got != rows {
		t.Errorf("erased %d rows, want %d, which the block takes now", got, rows)
	}
}

// TestViewFlight checks that the limit is shown only if it matters.
func TestViewFlight(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		limit, max int
		draining   bool
		want       string
	}{
		{"no limit but the highest", 24, 24, false, "23/24"},
		{"a limit", 19, 24, false, "23, limit 19 of 24"},
		{"draining", 19, 24, true, "23"},
	} {
		v := View{Stats: collector.Stats{InFlight: 23, Endpoints: []collector.EndpointStats{{Limit: tt.limit, Max: tt.max}}}, Draining: tt.draining}
		if got := v.flight(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// A terminal interprets the escape sequences that the display uses. Rows that scroll off the screen
// stay in its history. Like tmux, it also copies the screen there when ESC [ J erases all of it
// (github.com/tmux/tmux/issues/3090).
type terminal struct {
	width, height int
	history, rows []string
	x, y          int
}

func (m *terminal) write(t *testing.T, text string) {
	t.Helper()
	for text != "" {
		if seq := sequence.FindStringSubmatch(text); seq != nil {
			text = text[len(seq[0]):]
			switch n, _ := strconv.Atoi(seq[1]); seq[2] {
			case "A":
				m.y = max(0, m.y-max(1, n))
			case "K":
				m.rows[m.y] = ""
			case "J":
				if m.x == 0 && m.y == 0 {
					m.history = append(m.history, m.rows...)
				}
				clear(m.rows[m.y:])
			}
			continue
		}
		r, size := utf8.DecodeRuneInString(text)
		text = text[size:]
		switch {
		case r == '\r':
			m.x = 0
		case r == '\n' && m.y == m.height-1:
			m.history, m.x = append(m.history, m.rows[0]), 0
			m.rows = append(m.rows[1:], "")
		case r == '\n':
			m.x, m.y = 0, m.y+1
		case r < ' ' || m.x == m.width || m.x != utf8.RuneCountInString(m.rows[m.y]):
			t.Fatalf("the terminal does not support %q at column %d", string(r)+text, m.x)
		default:
			m.rows[m.y] += string(r)
			m.x++
		}
	}
}

// sequence matches a sequence that moves the cursor, erases or colors.
var sequence = regexp.MustCompile(`^\x1b\[([0-9;]*)([AKJm])`)

// text returns the history and the screen, without empty rows at the end.
func (m *terminal) text() string {
	return strings.TrimRight(strings.Join(append(m.history, m.rows...), "\n"), "\n")
}

// TestFirstLineHasRates checks that the first plain line shows the rates since the start.
func TestFirstLineHasRates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		d := liveDisplay(&out)
		d.mode, d.every = displayPlain, 10*time.Second
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		begun := time.Now()
		d.Show(ctx, func() View {
			seconds := int(time.Since(begun).Seconds())
			v := View{Stats: collector.Stats{Planned: 1000, Accepted: 3 * seconds}}
			v.Sampled = int64(200 * seconds)
			return v
		})
		flush(t, d)
		if got := out.String(); !strings.Contains(got, "30/1,000 done") || !strings.Contains(got, ", 3.00 samples/s, 200 tokens/s") {
			t.Errorf("the first line is %q", got)
		}
	})
}

func TestMeter(t *testing.T) {
	t.Parallel()
	var m meter
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 100 { // ten per second for 50 s, then none
		samples, tokens := m.add(start.Add(time.Duration(i)*time.Second), min(i, 50)*10, int64(min(i, 50)*1000))
		switch {
		case (i == 0 || i == 99) && samples != 0:
			t.Errorf("rate after %d s = %v, want 0", i, samples)
		case i == 40 && (samples != 10 || tokens != 1000):
			t.Errorf("rates = %v, %v, want 10, 1000", samples, tokens)
		}
	}
	if len(m.marks) > 40 {
		t.Errorf("%d marks are kept", len(m.marks))
	}
	if samples, _ := m.add(start.Add(100*time.Second), 400, 50_000); samples != 0 {
		t.Errorf("rate after samples have moved = %v, want 0", samples)
	}
}

// must fails the test at err.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

var update = flag.Bool("update", false, "make the picture of the live block anew")

// TestPictureOfTheLiveBlock draws the picture of a run in progress.
func TestPictureOfTheLiveBlock(t *testing.T) {
	t.Parallel()
	v := midway()
	v.Stats = collector.Stats{
		Planned: 2000, Committed: 1100, Accepted: 186, Failed: 4, Remaining: 710, InFlight: 47, Retries: 12,
		FailedByClass: map[collector.Class]int{collector.ClassUnavailable: 9, collector.ClassConnection: 3},
		Endpoints:     []collector.EndpointStats{{Name: "http://10.0.0.1:8283", InFlight: 24, Limit: 24, Max: 24}, {Name: "http://10.0.0.2:8283", InFlight: 23, Limit: 24, Max: 24}},
		Oldest:        &collector.InFlight{TaskID: "gsm8k-0412", Index: 3, Attempt: 1, Endpoint: "http://10.0.0.2:8283", Stage: collector.StageRun, Since: v.Oldest.Since, Started: v.Oldest.Since},
	}
	v.Sink, v.rate, v.tokens = sink.Stats{Shards: 3, Bytes: 12_345_678}, 7.31, 12_431
	v.Failing, v.Rewards = map[string]int{"token_mismatch": 4}, &Rewards{Scored: 1282, Mean: new(0.4119)}
	text := "$ rollout collect -c run.yaml\n" + strings.Join(v.block(92, true), "\n")
	picturetest.Check(t, "../../../../testdata/pictures/collect.svg", picturetest.Terminal(t, 92, text), *update)
}

// TestDrainSaysWhatItWaitsFor checks that a drain describes the samples that it waits for, without
// those that wait for a retry.
func TestDrainSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		stages []map[collector.Stage]int // by server
		want   string
	}{
		{nil, "finished samples to be written"},
		{[]map[collector.Stage]int{{collector.StageWait: 24}}, "finished samples to be written"},
		{[]map[collector.Stage]int{{collector.StageScore: 1}}, "1 sample being scored"},
		{
			[]map[collector.Stage]int{{collector.StageOpen: 1, collector.StageRun: 2, collector.StageWait: 5}, {collector.StageRun: 4, collector.StagePrompt: 1}},
			"8 samples in flight",
		},
		{
			[]map[collector.Stage]int{{collector.StageRun: 1, collector.StageScore: 2}, {collector.StageScore: 3, collector.StageAppend: 4, collector.StageClose: 1}},
			"1 sample in flight, 5 being scored, 4 being written, 1 being cleaned up",
		},
	} {
		var s collector.Stats
		for _, stages := range tt.stages {
			s.Endpoints = append(s.Endpoints, collector.EndpointStats{Stages: stages})
		}
		if got := Works(s); got != tt.want {
			t.Errorf("works(%v) = %q, want %q", tt.stages, got, tt.want)
		}
	}
}
