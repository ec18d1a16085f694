package reward

import (
	"fmt"
	"io"
	"sync"
)

// maxTalk bounds what one process may say on its standard error: a traceback, and not a
// terminal or a log file full.
const maxTalk = 256 << 10

// A talk passes on what a process says on its standard error, up to maxTalk.
type talk struct {
	to   io.Writer
	name string

	mu   sync.Mutex
	left int
	cut  bool
}

// Write never fails: a program must not end because nobody listens.
func (t *talk) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(b)
	if t.to == nil || t.cut {
		return n, nil
	}
	if n <= t.left {
		t.left -= n
		_, _ = t.to.Write(b)
		return n, nil
	}
	t.cut = true
	_, _ = t.to.Write(b[:t.left])
	_, _ = fmt.Fprintf(t.to, "\n(%s says more on its standard error than %d kB: the rest is left out)\n", t.name, maxTalk>>10)
	return n, nil
}
