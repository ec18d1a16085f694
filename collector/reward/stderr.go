package reward

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
)

// maxTalk limits the number of bytes that are forwarded from the standard error of one process. The
// limit is high enough for a traceback and low enough to keep a terminal or a log file readable.
const maxTalk = 256 << 10

// A talk forwards the standard error of a process, up to maxTalk bytes, and notes its last line.
type talk struct {
	to   io.Writer
	name string
	pipe stderrPipe

	mu   sync.Mutex
	left int
	cut  bool
	line []byte // the start of the last nonempty line since forget
	open bool   // the line is incomplete
}

const maxLine = 400

// forget forgets what the program has written so far. The failure of a request must not be explained by a line that
// belongs to an earlier request.
func (t *talk) forget() {
	t.catchUp()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.line, t.open = nil, false
}

// last returns the last nonempty line since forget, in a form that can be appended to an error message.
func (t *talk) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.line) == 0 {
		return ""
	}
	return ": " + strings.ToValidUTF8(string(t.line), "\uFFFD")
}

func (t *talk) note(b []byte) {
	for part := range bytes.Lines(b) {
		text := bytes.TrimRight(part, "\r\n")
		if !t.open && len(bytes.TrimSpace(text)) > 0 {
			t.line = t.line[:0]
		}
		t.open = len(text) == len(part) && (t.open || len(bytes.TrimSpace(text)) > 0)
		if len(bytes.TrimSpace(text)) > 0 {
			t.line = append(t.line, text[:min(len(text), maxLine-len(t.line))]...)
		}
	}
}

// take notes and forwards a part of the standard error. It ignores errors, so that a failed write to the destination
// does not make the program exit. The caller must hold the lock.
func (t *talk) take(b []byte) {
	t.note(b)
	if t.to == nil || t.cut {
		return
	}
	if len(b) <= t.left {
		t.left -= len(b)
		_, _ = t.to.Write(b)
		return
	}
	t.cut = true
	_, _ = t.to.Write(b[:t.left])
	_, _ = fmt.Fprintf(t.to, "\n(%s wrote more than %d kB to standard error; the rest is dropped)\n", t.name, maxTalk>>10)
}
