package show

import (
	"io"
	"sync"
	"time"
)

// A queue gives what is written to it to another writer, in order. A write to it never waits for
// the reader behind that writer: a goroutine does the writing, and lives as long as something is
// unwritten.
type queue struct {
	to io.Writer
	// crowded is called with true when more than queueFull bytes are unwritten, and with false
	// when less than half of that is. It must neither wait nor write. Nil: nobody asks.
	crowded func(bool)

	mu      sync.Mutex
	lines   [][]byte // each as it was written; not begun
	size    int      // unwritten bytes
	last    int      // unwritten bytes up to the end of the last status; ≤ 0: it is written
	full    bool
	running bool          // the goroutine lives
	moved   chan struct{} // closed when the goroutine has written something; nil: nobody waits
}

const (
	// queueFull is from which size on a queue is crowded. A group of eight samples has some
	// 2 kB of events.
	queueFull = 1 << 20
	// queueBatch is how many bytes are written at a time, about: what a pipe holds.
	queueBatch = 64 << 10
)

func newQueue(to io.Writer) *queue { return &queue{to: to} }

// Write is io.Writer's. It takes all of b and returns no error: a reader that is gone is not a
// reason to stop a run.
func (q *queue) Write(b []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lines = append(q.lines, append([]byte(nil), b...))
	q.size += len(b)
	q.tell()
	if !q.running {
		q.running = true
		go q.run()
	}
	return len(b), nil
}

// status marks what was written last as a status.
func (q *queue) status() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.last = q.size
}

// behind reports whether a status is unwritten. Another one would only make a reader that is
// late later.
func (q *queue) behind() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.last > 0
}

// isFull reports whether more is unwritten than should be.
func (q *queue) isFull() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.full
}

// run writes until nothing is left.
func (q *queue) run() {
	var batch []byte
	for {
		q.mu.Lock()
		q.size -= len(batch)
		q.last -= len(batch)
		q.tell()
		if len(batch) > 0 && q.moved != nil {
			close(q.moved)
			q.moved = nil
		}
		for batch = batch[:0]; len(q.lines) > 0 && (len(batch) == 0 || len(batch)+len(q.lines[0]) <= queueBatch); q.lines = q.lines[1:] {
			batch = append(batch, q.lines[0]...)
			q.lines[0] = nil
		}
		if q.running = len(batch) > 0; !q.running {
			q.lines = nil
			q.mu.Unlock()
			return
		}
		q.mu.Unlock()
		_, _ = q.to.Write(batch) // what could not be written is gone
	}
}

// tell calls crowded when that changes.
func (q *queue) tell() {
	full := q.size > queueFull || q.full && q.size > queueFull/2
	if full != q.full && q.crowded != nil {
		q.crowded(full)
	}
	q.full = full
}

// flush waits until everything is written. It returns false when nothing was for as long as
// patience.
func (q *queue) flush(patience time.Duration) bool {
	for {
		q.mu.Lock()
		if !q.running {
			q.mu.Unlock()
			return true
		}
		if q.moved == nil {
			q.moved = make(chan struct{})
		}
		moved := q.moved
		q.mu.Unlock()
		select {
		case <-moved:
		case <-time.After(patience):
			return false
		}
	}
}
