package show

import (
	"io"
	"sync"
	"time"
)

// A queue passes writes to another writer, in order. A write to the queue never blocks on that
// writer. While data is unwritten, a goroutine of the queue writes it.
type queue struct {
	to io.Writer
	// onFull is called with true when more than queueFull bytes are unwritten, and with false once
	// at most half of queueFull is unwritten. It must not block or write to the queue. It can be
	// nil.
	onFull func(bool)

	mu      sync.Mutex
	lines   [][]byte // one element per Write; the batch that is being written is not included
	size    int      // unwritten bytes
	last    int      // number of bytes still to write until the last status is written; ≤ 0 if it has been written
	full    bool
	running bool          // the goroutine is running
	moved   chan struct{} // closed when the goroutine has written something; nil if flush is not waiting
}

const (
	// queueFull is the number of unwritten bytes above which the queue is full. The events of a
	// group of eight samples take about 2 kB.
	queueFull = 1 << 20
	// queueBatch is the approximate maximum size of one write. It is the default capacity of a
	// Linux pipe.
	queueBatch = 64 << 10
)

func newQueue(to io.Writer) *queue { return &queue{to: to} }

// Write implements io.Writer. It never fails, because a run must not stop if its output has no
// reader.
func (q *queue) Write(b []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lines = append(q.lines, append([]byte(nil), b...))
	q.size += len(b)
	q.setFull()
	if !q.running {
		q.running = true
		go q.run()
	}
	return len(b), nil
}

// status marks the last Write as a status.
func (q *queue) status() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.last = q.size
}

// behind reports whether the last status has not yet been written. A slow reader would only fall
// further behind if another status were queued.
func (q *queue) behind() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.last > 0
}

func (q *queue) isFull() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.full
}

// run writes until the queue is empty.
func (q *queue) run() {
	var batch []byte
	for {
		q.mu.Lock()
		q.size -= len(batch)
		q.last -= len(batch)
		q.setFull()
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
		_, _ = q.to.Write(batch) // data that cannot be written is lost
	}
}

// setFull updates full, and calls onFull if full changes. The caller holds q.mu.
func (q *queue) setFull() {
	full := q.size > queueFull || q.full && q.size > queueFull/2
	if full != q.full && q.onFull != nil {
		q.onFull(full)
	}
	q.full = full
}

// flush waits until everything has been written. It returns false if no progress is made for the
// given time.
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
