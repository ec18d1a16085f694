package sink

import "sync"

// A queue holds the samples that are durable and wait for one writer, in the order
// of the write-ahead log. Pushing never blocks: how much may wait is the budget's
// to say.
type queue struct {
	// ready holds a token while there is something to pop, the end included. Only
	// the writer takes it.
	ready chan struct{}

	mu   sync.Mutex
	list []accepted
	head int // list[:head] is popped
	end  bool
	gone error // why the writer is gone; nil while it is not
}

func newQueue() *queue { return &queue{ready: make(chan struct{}, 1)} }

// push adds samples, all at once. It returns why not where the writer is gone.
func (q *queue) push(list ...accepted) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.gone != nil {
		return q.gone
	}
	if q.head > len(q.list)/2 { // a queue that is never empty does not grow for ever
		n := copy(q.list, q.list[q.head:])
		clear(q.list[n:])
		q.list, q.head = q.list[:n], 0
	}
	if q.list = append(q.list, list...); len(q.list) > 0 {
		q.signal()
	}
	return nil
}

// close says that no sample will follow.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.end = true
	q.signal()
}

// pop returns the next sample. ok is false if there is no sample now, and ended is true if
// there will never be one again.
func (q *queue) pop() (a accepted, ok, ended bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.head < len(q.list) {
		a, ok = q.list[q.head], true
		q.list[q.head] = accepted{}
		q.head++
	}
	if q.head == len(q.list) {
		q.list, q.head = q.list[:0], 0
	}
	if len(q.list) > 0 || q.end {
		q.signal()
	}
	return a, ok, !ok && q.end
}

// empty reports whether there is no sample now.
func (q *queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.head == len(q.list)
}

// leave says that the writer is gone, and why, and returns what it did not take.
func (q *queue) leave(why error) []accepted {
	q.mu.Lock()
	defer q.mu.Unlock()
	rest := q.list[q.head:]
	q.list, q.head, q.gone = nil, 0, why
	return rest
}

func (q *queue) signal() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}
