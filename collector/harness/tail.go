package harness

import (
	"bytes"
	"slices"
	"strings"
	"sync"
)

// A tail is a writer that keeps the last max bytes.
type tail struct {
	max     int
	secrets *redactor

	mu  sync.Mutex
	b   []byte
	cut bool // earlier bytes were dropped
}

// Write never returns an error, because otherwise the program could block or fail.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(p)
	if len(p) > t.max {
		p, t.cut = p[len(p)-t.max:], true
	}
	if len(t.b)+len(p) > 2*t.max {
		t.b, t.cut = append(t.b[:0], t.b[len(t.b)-t.max:]...), true
	}
	t.b = append(t.b, p...)
	return n, nil
}

// bytes returns the last bytes, with secrets. If earlier bytes were dropped, it also drops the rest of the first
// line, or a possible end of a secret.
func (t *tail) bytes() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.b
	if len(b) > t.max {
		b = b[len(b)-t.max:]
	}
	if t.cut || len(b) < len(t.b) {
		// The end of a secret at the start would not be recognized.
		b = b[min(t.secrets.longest, len(b)):]
		if _, rest, ok := bytes.Cut(b, []byte("\n")); ok {
			b = rest
		}
	}
	return slices.Clone(b)
}

// last returns the last nonempty line, without secrets, at most 300 bytes of it, in a form that can be appended to an
// error.
func (t *tail) last() string {
	text := t.secrets.text(string(t.bytes()))
	lines := strings.Split(strings.ToValidUTF8(text, "\uFFFD"), "\n")
	for _, line := range slices.Backward(lines) {
		if line = strings.TrimSpace(line); line != "" {
			return "; its last line: " + strings.ToValidUTF8(line[:min(len(line), 300)], "")
		}
	}
	return ""
}
