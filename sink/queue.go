package sink

import "sync"

// A queue holds durable samples for the writer, in the order of the write-ahead log. The method
// push never blocks, because the budget already limits the size of the queue.
type queue struct {
	// ready contains a token if a sample can be popped, the queue has ended, or a caller is
	// waiting for the budget.
	ready chan struct{}

	mu   sync.Mutex
	list []accepted
	head int // list[:head] has been popped
	end  bool
	gone error // the reason why the writer ended; nil while it runs
}

func newQueue() *queue { return &queue{ready: make(chan struct{}, 1)} }

// push adds all samples at once. If the writer has ended, push returns the reason.
func (q *queue) push(list ...accepted) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.gone != nil {
		return q.gone
	}
	if q.head > len(q.list)/2 { // otherwise the list would grow forever if the queue is never empty
		n := copy(q.list, q.list[q.head:])
		clear(q.list[n:])
		q.list, q.head = q.list[:n], 0
	}
	if q.list = append(q.list, list...); len(q.list) > 0 {
		q.signal()
	}
	return nil
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.end = true
	q.signal()
}

// pop removes and returns the next sample. ok is false if the queue is empty. ended is true if the
// queue is empty and no sample will follow.
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

func (q *queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.head == len(q.list)
}

// leave removes and returns the remaining samples when the writer ends. Later calls of push
// return the given error.
func (q *queue) leave(why error) []accepted {
	q.mu.Lock()
	defer q.mu.Unlock()
	rest := q.list[q.head:]
	q.list, q.head, q.gone = nil, 0, why
	return rest
}

// signal wakes the writer, so that it checks the queue and the budget.
func (q *queue) signal() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}
