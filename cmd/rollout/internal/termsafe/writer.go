package termsafe

import (
	"io"
	"os"
	"sync"
	"unicode/utf8"
)

// A Writer escapes text as Text does, but keeps line breaks and tabs. It is safe for concurrent
// use.
type Writer struct {
	mu      sync.Mutex
	to      io.Writer
	colours bool
	held    []byte // the first bytes of an incomplete character
	out     []byte
}

// NewWriter returns a Writer that writes to w.
func NewWriter(w io.Writer) *Writer { return &Writer{to: w} }

// Colours allows the escape sequences that the program uses on a terminal: colors, and the cursor
// movements that redraw a block. Every other sequence is still escaped.
func (w *Writer) Colours() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.colours = true
}

// Write implements io.Writer. It returns either len(b) or 0, never a number in between.
func (w *Writer) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := b
	if len(w.held) > 0 {
		text = append(w.held, b...)
		w.held = nil
	}
	w.out = w.out[:0]
	from := 0 // start of the text that needs no escaping
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
	if from == 0 {
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

// ours returns the length of the allowed sequence at the start of text, or 0 if there is none. A
// sequence consists of an optional carriage return, ESC [, digits and semicolons, and finally m, A
// or K.
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
		case c == 'm', c == 'A', c == 'K':
			return i + 1
		default:
			return 0
		}
	}
	return 0
}

// Flush writes the bytes of an incomplete character as escapes.
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

// Raw returns the underlying writer of a Writer, for output that must not be escaped. It returns
// any other writer unchanged.
func Raw(w io.Writer) io.Writer {
	if p, ok := w.(*Writer); ok {
		return p.to
	}
	return w
}

// File returns the file that w writes to. ok is false if w does not write to a file.
func File(w io.Writer) (*os.File, bool) {
	f, ok := Raw(w).(*os.File)
	return f, ok
}
