package collector

import "sync"

// shares decides which endpoint gets the next fresh sample. Among those that have room, each
// gets a share in proportion to its weight; where only one has room, it gets the sample.
//
// Every endpoint has a mark, which grows by 1/weight with each sample that it gets, and the
// lowest mark is next. An endpoint that had no room for a while goes on at the mark of the
// others: it makes up for nothing.
//
// An endpoint has room while one of its workers is ready: it waits for a fresh sample with a
// permit, or it is on its way there and nothing is known to be in its way. A worker that got
// a sample stays ready until its successor is, so that an endpoint with room never seems to
// have none in between.
//
// While samples are on their way from one endpoint to another, no fresh one is taken up: those
// were begun, and come first wherever there is room.
type shares struct {
	mu      sync.Mutex
	weights []float64
	marks   []float64
	ready   []int         // workers, by endpoint
	moving  int           // samples between two endpoints
	now     float64       // the mark of the endpoint that got the latest sample, before it did
	changed chan struct{} // closed when another endpoint may be next; nil: nobody waits for that
}

func newShares(endpoints []*endpoint) *shares {
	n := len(endpoints)
	s := &shares{weights: make([]float64, n), marks: make([]float64, n), ready: make([]int, n)}
	for i, ep := range endpoints {
		s.weights[i] = ep.Weight
	}
	return s
}

// next returns the index of the endpoint that gets the next sample, or -1 if none gets one now.
// changed is closed when that may be another one.
func (s *shares) next() (at int, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	at = -1
	for i, n := range s.ready {
		if s.moving == 0 && n > 0 && (at < 0 || s.marks[i] < s.marks[at]) {
			at = i
		}
	}
	return at, s.changed
}

// took notes that an endpoint got a sample.
func (s *shares) took(at int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.marks[at]
	s.marks[at] += 1 / s.weights[at]
}

// is notes that one more worker of an endpoint is ready, or one less.
func (s *shares) is(at int, ready bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	had := s.ready[at] > 0
	if ready {
		s.ready[at]++
	} else {
		s.ready[at]--
	}
	has := s.ready[at] > 0
	if has == had {
		return
	}
	if has {
		s.marks[at] = max(s.marks[at], s.now)
	}
	s.change()
}

// moves notes that n more samples are between two endpoints; less than 0: that they are not
// any longer.
func (s *shares) moves(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	did := s.moving > 0
	s.moving += n
	if does := s.moving > 0; does != did {
		s.change()
	}
}

// change tells who waits that another endpoint may be next.
func (s *shares) change() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}
