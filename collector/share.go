package collector

import "sync"

// shares decides which endpoint gets the next fresh sample. Endpoints with room share the samples
// in proportion to their weights.
//
// Every endpoint has a mark, which grows by 1/weight with each sample that the endpoint gets. The
// endpoint with the lowest mark gets the next sample. If an endpoint had no room for a while, its
// mark is raised to the mark of the endpoint that got the latest sample. Otherwise, the endpoint
// would get all samples until its mark had caught up.
//
// An endpoint has room while one of its workers is ready. A ready worker has a permit and waits for
// a fresh sample, or will do so soon. A worker that gets a sample counts as ready until the next
// worker is ready. Otherwise, an endpoint with room would seem full for a moment.
//
// While samples move between endpoints, no fresh sample is claimed, because the moving samples come
// first.
type shares struct {
	mu       sync.Mutex
	weights  []float64
	marks    []float64
	ready    []int         // number of ready workers, by endpoint
	moving   int           // number of samples that move between endpoints
	lastMark float64       // mark that the endpoint with the latest sample had before that sample
	changed  chan struct{} // closed when next can return another endpoint; nil if no caller waits
}

func newShares(endpoints []*endpoint) *shares {
	n := len(endpoints)
	s := &shares{weights: make([]float64, n), marks: make([]float64, n), ready: make([]int, n)}
	for i, ep := range endpoints {
		s.weights[i] = ep.Weight
	}
	return s
}

// next returns the index of the endpoint that gets the next sample, or -1 if no endpoint can get a
// sample now. The channel changed is closed when the result can change.
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

func (s *shares) assign(at int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastMark = s.marks[at]
	s.marks[at] += 1 / s.weights[at]
}

// setReady records that one worker of an endpoint has become ready, or is no longer ready.
func (s *shares) setReady(at int, ready bool) {
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
		s.marks[at] = max(s.marks[at], s.lastMark)
	}
	s.change()
}

func (s *shares) addMoving(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	did := s.moving > 0
	s.moving += n
	if does := s.moving > 0; does != did {
		s.change()
	}
}

func (s *shares) change() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}
