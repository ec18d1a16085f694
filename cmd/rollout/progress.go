package main

import (
	"bytes"
	"context"
	"io"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/human"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tame"
)

// A display shows a run while it goes on, in one of four ways: a live block on a
// terminal, a plain line every so often, JSON lines, or nothing. Lines of talk go
// through it, so that they never land inside the live block.
type display struct {
	mode  displayMode
	every time.Duration
	out   io.Writer // where the block, the plain lines or the JSON lines go
	talk  io.Writer // stderr
	width func() int
	paint painter
	now   func() time.Time

	mu    sync.Mutex
	drawn []int // columns of the lines of the live block that stand on the screen
	meter meter
}

type displayMode uint8

const (
	displayPlain displayMode = iota
	displayLive
	displayJSON
	displayQuiet
)

// newDisplay chooses the way by the flags and by what stderr is.
func (p *program) newDisplay(asJSON, quiet bool) *display {
	d := &display{mode: displayPlain, every: 10 * time.Second, out: p.stderr, talk: p.stderr, now: time.Now, width: func() int { return 80 }}
	f, isFile := tame.File(p.stderr)
	switch {
	case asJSON:
		d.mode, d.out, d.every = displayJSON, p.stdout, 5*time.Second
	case quiet:
		d.mode = displayQuiet
	case isFile && term.IsTerminal(int(f.Fd())) && p.getenv("TERM") != "dumb":
		d.mode, d.every = displayLive, 200*time.Millisecond
		p.stderr.Colours()
		d.paint = painter(p.getenv("NO_COLOR") == "")
		d.width = func() int {
			if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 20 {
				return w
			}
			return 80
		}
	}
	return d
}

// run shows the run until ctx is done. Only the live block is drawn at once; the
// others wait for their time.
func (d *display) run(ctx context.Context, state func() view) {
	if d.mode == displayQuiet {
		return
	}
	tick := time.NewTicker(d.every)
	defer tick.Stop()
	if d.mode == displayLive {
		d.show(state())
	}
	for {
		select {
		case <-ctx.Done():
			d.clear()
			return
		case <-tick.C:
			d.show(state())
		}
	}
}

// show prints one state of the run.
func (d *display) show(v view) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v.now = d.now()
	d.meter.add(v.now, doneNow(v.Stats), v.Sampled)
	v.rate, v.tokens = d.meter.samples(), d.meter.tokens()
	switch d.mode {
	case displayLive:
		d.draw(v.block(d.width(), d.paint))
	case displayJSON:
		writeEvent(d.out, "status", v.json())
	case displayPlain:
		tame.Fprintf(d.out, "%s\n", v.line())
	case displayQuiet:
	}
}

// draw replaces the live block by lines.
func (d *display) draw(lines []string) {
	var b bytes.Buffer
	d.erase(&b)
	for _, l := range lines {
		b.WriteString(l)
		b.WriteByte('\n')
		d.drawn = append(d.drawn, human.Columns(l))
	}
	_, _ = d.out.Write(b.Bytes()) // a terminal that is gone is no reason to stop a run
}

// erase writes what takes the live block off the screen. A terminal that became
// narrower since has wrapped its lines.
func (d *display) erase(b *bytes.Buffer) {
	width, rows := d.width(), 0
	for _, n := range d.drawn {
		rows += max(1, (n+width-1)/width)
	}
	if rows > 0 {
		tame.Fprintf(b, "\r\x1b[%dA\x1b[J", rows)
	}
	d.drawn = d.drawn[:0]
}

func (d *display) clear() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mode == displayLive {
		d.draw(nil)
	}
}

// say writes a line of talk above the block. In JSON mode it is an event as well.
func (d *display) say(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	text := tame.Sprintf(format, args...)
	var b bytes.Buffer
	if d.mode == displayLive {
		d.erase(&b)
	}
	tame.Fprintf(&b, "rollout: %s\n", text)
	_, _ = d.talk.Write(b.Bytes())
	if d.mode == displayJSON {
		writeEvent(d.out, "warning", map[string]any{"text": text})
	}
}

// note is say, for what need not be known.
func (d *display) note(format string, args ...any) {
	if d.mode != displayQuiet {
		d.say(format, args...)
	}
}

// event writes a JSON line, in JSON mode only.
func (d *display) event(name string, fields map[string]any) {
	if d.mode != displayJSON {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	writeEvent(d.out, name, fields)
}

// finish says how the run ended: the summary for people, or the last JSON line.
func (d *display) finish(s *summary) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch d.mode {
	case displayJSON:
		writeEvent(d.out, "done", map[string]any{"summary": s})
	case displayPlain, displayLive:
		tame.Fprintf(d.talk, "rollout: run %s in %s: %s\n\n%s\n", s.RunID, s.Dir, s.Outcome, tame.Own(d.folded(s.text())))
		for _, hint := range s.Hints {
			tame.Fprintf(d.talk, "hint: %s\n", hint)
		}
	case displayQuiet:
	}
}

// folded folds lines that begin with a name, as those of a summary do, on a terminal;
// elsewhere a line is a line.
func (d *display) folded(text string) string {
	if d.mode != displayLive {
		return text
	}
	return human.Fold(text, d.width()-1, len("  committed  "))
}

// A meter turns counts into rates over the last half minute.
type meter struct {
	marks []mark
}

type mark struct {
	at     time.Time
	done   int
	tokens int64
}

const meterWindow = 30 * time.Second

func (m *meter) add(now time.Time, done int, tokens int64) {
	m.marks = append(m.marks, mark{now, done, tokens})
	for len(m.marks) > 2 && now.Sub(m.marks[1].at) >= meterWindow {
		m.marks = m.marks[1:]
	}
}

// samples is finished samples per second.
func (m *meter) samples() float64 {
	first, last, seconds := m.window()
	if seconds == 0 {
		return 0
	}
	return float64(last.done-first.done) / seconds
}

// tokens is sampled tokens per second.
func (m *meter) tokens() float64 {
	first, last, seconds := m.window()
	if seconds == 0 {
		return 0
	}
	return float64(last.tokens-first.tokens) / seconds
}

func (m *meter) window() (first, last mark, seconds float64) {
	if len(m.marks) < 2 {
		return mark{}, mark{}, 0
	}
	first, last = m.marks[0], m.marks[len(m.marks)-1]
	return first, last, last.at.Sub(first.at).Seconds()
}
