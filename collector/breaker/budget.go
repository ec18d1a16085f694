package breaker

import "time"

// A Budget is what one sample was charged. Its zero value is that of a sample which
// nobody began. It belongs to the Breaker of the server at which the sample is worked on;
// before the sample goes to another server, Breaker.Leave must be called.
type Budget struct {
	Charged     int // attempts held against Config.Retries
	DataCharged int // attempts held against Config.DataRetries

	earlier int     // Charged, as an earlier process left it
	series  *series // in which the last charges were made, nil: they are final
	held    int     // how many were made in it
	busy    refusals
	spared  bool // by a check that the server did not answer
}

// Resume returns the budget of a sample that was charged so much by earlier processes.
func Resume(charged, dataCharged int) Budget {
	return Budget{Charged: charged, DataCharged: dataCharged, earlier: charged}
}

// Forgive refunds everything that this process charged against Config.Retries: looking for
// an attempt of an earlier process was in vain.
func (s *Budget) Forgive() {
	s.Charged, s.series, s.held = s.earlier, nil, 0
}

// charge holds an attempt against Config.Retries. A charge made in a series is not final
// before the series is over; nil is none.
func (s *Budget) charge(in *series) {
	s.Charged++
	switch in {
	case nil:
	case s.series:
		s.held++
	default:
		s.series, s.held = in, 1
	}
}

// settle refunds the charges of a series that tripped the breaker, and makes those of any
// other series final. It does nothing while the series is not over.
func (s *Budget) settle() {
	if s.series == nil || !s.series.over {
		return
	}
	if s.series.down && !s.series.own {
		s.Charged -= s.held
	}
	s.series, s.held = nil, 0
}

// refund takes the charges of the series back.
func (s *Budget) refund() {
	s.Charged -= s.held
	s.series, s.held = nil, 0
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
