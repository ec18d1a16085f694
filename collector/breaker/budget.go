package breaker

import "time"

// A Budget is what one sample was charged. Its zero value is that of a sample which
// nobody began. It belongs to the Breaker of the server at which the sample is worked on;
// before the sample goes to another server, Breaker.Leave must be called.
type Budget struct {
	Charged  int // attempts held against Config.Retries
	Rerolled int // attempts held against Config.Rerolls

	earlier int   // Charged, as an earlier process left it
	trip    *trip // in which the last charges were made, nil: they are final
	held    int   // how many were made in it
	busy    refusals
}

// Resume returns the budget of a sample that was charged so much by earlier processes.
func Resume(charged, rerolled int) Budget {
	return Budget{Charged: charged, Rerolled: rerolled, earlier: charged}
}

// Forgive refunds everything that this process charged against Config.Retries: looking for
// an attempt of an earlier process was in vain.
func (s *Budget) Forgive() {
	s.Charged, s.trip, s.held = s.earlier, nil, 0
}

// charge holds an attempt against Config.Retries. In a trip it does so until that is over;
// nil is not a trip.
func (s *Budget) charge(in *trip) {
	s.Charged++
	switch in {
	case nil:
	case s.trip:
		s.held++
	default:
		s.trip, s.held = in, 1
	}
}

// settle refunds the charges of a trip that tripped the breaker, and makes those of
// another trip final. It does nothing while the trip may still do either.
func (s *Budget) settle() {
	if s.trip == nil || !s.trip.over {
		return
	}
	if s.trip.down && !s.trip.own {
		s.Charged -= s.held
	}
	s.trip, s.held = nil, 0
}

// refund takes the charges of the trip back.
func (s *Budget) refund() {
	s.Charged -= s.held
	s.trip, s.held = nil, 0
}

// refusals counts how often the server turned the sample away without any other end of an
// attempt between.
type refusals struct {
	since   time.Time // the first
	n       int
	hadRoom int // of the last ones, those after which the server had room for a check
}

// A sample is checked for after checkAfter refusals. A place may become free just then, so
// that it takes clearAfter checks in a row until the refusals are the sample's own.
const (
	checkAfter = 5
	clearAfter = 3
)
