package tame

import (
	"io"
	"os"
	"sync"
	"unicode/utf8"
)

// A Writer writes what it is given with escapes for what cannot be shown, but for
// breaks of lines and tabs. It may be used by several goroutines.
type Writer struct {
	mu      sync.Mutex
	to      io.Writer
	colours bool
	held    []byte // the beginning of a character whose end is still to come
	out     []byte
}

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{to: w} }

// Colours lets pass from now on what we draw with on a terminal: colours, and the steps
// back over a block that is drawn anew. Nothing else that begins with ESC ever passes.
func (w *Writer) Colours() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.colours = true
}

// Write is io.Writer's. It reports all of b as written, or none.
func (w *Writer) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := b
	if len(w.held) > 0 {
		text = append(w.held, b...)
		w.held = nil
	}
	w.out = w.out[:0]
	from := 0 // of what needs no escape
	for i := 0; i < len(text); {
		c := text[i]
		if c >= ' ' && c <= '~' || c == '\n' || c == '\t' {
			i++
			continue
		}
		if c >= utf8.RuneSelf && !utf8.FullRune(text[i:]) {
			w.held = append([]byte(nil), text[i:]...)
			text = text[:i]
			break
		}
		if n := w.ours(text[i:]); n > 0 {
			i += n
			continue
		}
		r, size := utf8.DecodeRune(text[i:])
		w.out = append(w.out, text[from:i]...)
		w.out = appendShown(w.out, string(text[i:i+size]), r)
		i += size
		from = i
	}
	if from == 0 { // nothing was escaped
		if len(text) > 0 {
			if _, err := w.to.Write(text); err != nil {
				return 0, err
			}
		}
		return len(b), nil
	}
	w.out = append(w.out, text[from:]...)
	if _, err := w.to.Write(w.out); err != nil {
		return 0, err
	}
	return len(b), nil
}

// ours is how long the sequence of ours is that text begins with: ESC [ digits and
// semicolons, then m, A or J; a carriage return may stand before it.
func (w *Writer) ours(text []byte) int {
	if !w.colours {
		return 0
	}
	i := 0
	if text[0] == '\r' {
		i = 1
	}
	if len(text) < i+3 || text[i] != 0x1b || text[i+1] != '[' {
		return 0
	}
	for i += 2; i < len(text); i++ {
		switch c := text[i]; {
		case c >= '0' && c <= '9', c == ';':
		case c == 'm', c == 'A', c == 'J':
			return i + 1
		default:
			return 0
		}
	}
	return 0
}

// Flush writes what is held back of a character that was cut off.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.held) == 0 {
		return nil
	}
	var out []byte
	for _, c := range w.held {
		out = appendShown(out, string([]byte{c}), utf8.RuneError)
	}
	w.held = nil
	_, err := w.to.Write(out)
	return err
}

// Raw is the writer behind w where it is a Writer, for what must come out as it is; else
// w itself.
func Raw(w io.Writer) io.Writer {
	if p, ok := w.(*Writer); ok {
		return p.to
	}
	return w
}

// File is the file that w writes to in the end, if it is one.
func File(w io.Writer) (*os.File, bool) {
	f, ok := Raw(w).(*os.File)
	return f, ok
}
