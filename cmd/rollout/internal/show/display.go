package show

import (
	"bytes"
	"context"
	"io"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/collector/wait"
)

// A Display shows the progress of a run. It has four modes: a live block on a terminal, a plain
// line at intervals, JSON lines, or nothing. All messages are printed through the display, so that
// none appears inside the live block. No method except Flush waits for the reader of the output.
type Display struct {
	mode  displayMode
	every time.Duration
	out   *queue                     // output for the block, the plain lines or the JSON lines
	talk  *queue                     // output for stderr
	size  func() (width, height int) // size of the terminal
	paint Painter
	now   func() time.Time

	mu    sync.Mutex
	drawn []int // width, in columns, of each line of the live block on the screen
	done  bool  // Finish has been called
	meter meter
}

type displayMode uint8

const (
	displayPlain displayMode = iota
	displayLive
	displayJSON
	displayQuiet
)

// NewDisplay selects the mode. asJSON and quiet take precedence. Otherwise the mode depends on
// whether stderr is a terminal.
func NewDisplay(stdout, stderr *termsafe.Writer, getenv func(string) string, asJSON, quiet bool) *Display {
	talk := newQueue(stderr)
	d := &Display{mode: displayPlain, every: 10 * time.Second, out: talk, talk: talk, now: time.Now, size: func() (int, int) { return 80, 24 }}
	f, isFile := termsafe.File(stderr)
	switch {
	case asJSON:
		d.mode, d.out, d.every = displayJSON, newQueue(stdout), 5*time.Second
	case quiet:
		d.mode = displayQuiet
	case isFile && term.IsTerminal(int(f.Fd())) && getenv("TERM") != "dumb":
		d.mode, d.every = displayLive, 200*time.Millisecond
		stderr.Colours()
		d.paint = Painter(getenv("NO_COLOR") == "")
		d.size = func() (int, int) {
			if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 20 && h > 1 {
				return w, h
			}
			return 80, 24
		}
	}
	return d
}

// JSON reports whether the output is JSON lines.
func (d *Display) JSON() bool { return d.mode == displayJSON }

// OnUnread sets a callback. The display calls f(true) when the reader has fallen too far behind,
// and f(false) when it has caught up. f must not block, not even on disk I/O, and must not write to
// the display.
func (d *Display) OnUnread(f func(bool)) {
	d.out.mu.Lock()
	defer d.out.mu.Unlock()
	d.out.onFull = f
}

// Flush waits until all events and messages have been read. It stops waiting if no byte is read for
// the given duration. The results report whether all events and all messages have been read.
func (d *Display) Flush(patience time.Duration) (events, messages bool) {
	if events = d.out.flush(patience); d.out == d.talk {
		return events, events
	}
	return events, d.talk.flush(patience)
}

// Quiet reports whether the display shows only errors.
func (d *Display) Quiet() bool { return d.mode == displayQuiet }

// Show displays the progress of the run until ctx is done. It draws the live block at once. In the
// other modes, it prints the first line after one interval. Rates are measured from the start of
// Show.
func (d *Display) Show(ctx context.Context, state func() View) {
	if d.mode == displayQuiet {
		return
	}
	if d.mode == displayLive {
		d.show(state())
	} else {
		v := state()
		d.mu.Lock()
		d.measure(&v)
		d.mu.Unlock()
	}
	for wait.For(ctx, d.every) {
		d.show(state())
	}
	d.clear()
}

// show prints one state of the run. It prints nothing if the reader has not yet read the previous
// state.
func (d *Display) show(v View) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.measure(&v)
	if d.out.behind() {
		return
	}
	switch d.mode {
	case displayLive:
		width, height := d.size()
		lines := v.block(width, d.paint)
		d.draw(lines[:min(len(lines), height-1)]) // the cursor stays below the block, and cannot move above the top of the screen
	case displayJSON:
		writeEvent(d.out, "status", v.json())
	case displayPlain:
		termsafe.Fprintf(d.out, "%s\n", v.line())
	case displayQuiet:
	}
	d.out.status()
}

// measure sets the view's time and rates. The caller holds d.mu.
func (d *Display) measure(v *View) {
	v.Now = d.now()
	v.rate, v.tokens = d.meter.add(v.Now, doneNow(v.Stats), v.Sampled)
}

func (d *Display) draw(lines []string) {
	var b bytes.Buffer
	d.erase(&b)
	for _, l := range lines {
		b.WriteString(l)
		b.WriteByte('\n')
		d.drawn = append(d.drawn, format.Columns(l))
	}
	_, _ = d.out.Write(b.Bytes())
}

// eraseRow moves the cursor up one row and erases that row. ESC [ J would erase all rows at once.
// But if the block starts at the top of the screen, tmux would copy the erased rows into its
// history.
const eraseRow = "\x1b[A\x1b[2K"

// erase writes the escape sequences that remove the live block. A line that the terminal has
// wrapped takes several rows.
func (d *Display) erase(b *bytes.Buffer) {
	width, height := d.size()
	rows := 0
	for _, n := range d.drawn {
		rows += max(1, (n+width-1)/width)
	}
	if rows > 0 {
		b.WriteString("\r" + strings.Repeat(eraseRow, min(rows, height-1)))
	}
	d.drawn = d.drawn[:0]
}

func (d *Display) clear() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mode == displayLive {
		d.draw(nil)
	}
}

// Say writes a message above the live block. In JSON mode the message is also an event.
func (d *Display) Say(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	text := termsafe.Sprintf(format, args...)
	d.above("rollout: %s\n", text)
	if d.mode == displayJSON && !d.done {
		writeEvent(d.out, "warning", map[string]any{"text": text})
	}
}

// above writes a message above the live block. The caller holds d.mu.
func (d *Display) above(format string, args ...any) {
	var b bytes.Buffer
	if d.mode == displayLive {
		d.erase(&b)
	}
	termsafe.Fprintf(&b, format, args...)
	_, _ = d.talk.Write(b.Bytes())
}

// Others returns a writer for the messages of child processes. The writer never blocks. It prints
// the messages above the live block. While more than a megabyte is unread, it drops new messages.
func (d *Display) Others() io.Writer { return others{d} }

type others struct{ *Display }

func (o others) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.talk.isFull() {
		o.above("%s", termsafe.Own(b))
	}
	return len(b), nil
}

// Note is like [Display.Say], but prints nothing with --quiet.
func (d *Display) Note(format string, args ...any) {
	if d.mode != displayQuiet {
		d.Say(format, args...)
	}
}

// Event writes an event as a JSON line. It does nothing in the other modes or after Finish.
func (d *Display) Event(name string, fields map[string]any) {
	if d.mode != displayJSON {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.done {
		writeEvent(d.out, name, fields)
	}
}

// Finish shows the summary at the end of the run, as text or as the last JSON line.
func (d *Display) Finish(s *Summary) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.done = true
	switch d.mode {
	case displayJSON:
		writeEvent(d.out, "done", map[string]any{"summary": s})
	case displayPlain, displayLive:
		termsafe.Fprintf(d.talk, "rollout: run %s in %s: %s\n\n%s\n", s.RunID, s.Dir, s.Outcome, termsafe.Own(d.folded(s.text())))
		for _, hint := range s.Hints {
			termsafe.Fprintf(d.talk, "hint: %s\n", hint)
		}
		if next := s.next(); next != "" {
			termsafe.Fprintf(d.talk, "next: %s\n", next)
		}
	case displayQuiet:
	}
}

// If the display shows a live block, folded wraps long lines to the width of the terminal. It
// expects lines that begin with a name, as in the summary. In the other modes, it returns the text
// unchanged.
func (d *Display) folded(text string) string {
	if d.mode != displayLive {
		return text
	}
	width, _ := d.size()
	return format.Fold(text, width-1, len("  committed  "))
}

// A meter computes rates over the last 30 seconds.
type meter struct {
	marks []mark
}

type mark struct {
	at     time.Time
	done   int
	tokens int64
}

const meterWindow = 30 * time.Second

// add records a state of the run. It returns the number of samples finished per second and the
// number of tokens sampled per second.
func (m *meter) add(now time.Time, done int, tokens int64) (samples, sampled float64) {
	m.marks = append(m.marks, mark{now, done, tokens})
	for len(m.marks) > 2 && now.Sub(m.marks[1].at) >= meterWindow {
		m.marks = m.marks[1:]
	}
	first := m.marks[0]
	seconds := now.Sub(first.at).Seconds()
	if seconds == 0 {
		return 0, 0
	}
	// The number of finished samples falls if another worker takes over their partition.
	return float64(max(0, done-first.done)) / seconds, float64(tokens-first.tokens) / seconds
}
