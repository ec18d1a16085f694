package breaker

import "time"

// A Budget counts the attempts charged to one sample. It is tied to the Breaker of the sample's
// current server. Call Breaker.Detach before the sample moves to another server.
type Budget struct {
	Charged     int // attempts charged to Config.Retries
	DataCharged int // attempts charged to Config.DataRetries

	earlier int     // part of Charged that comes from earlier processes
	series  *series // series of the charges that are not yet final; nil if all are final
	held    int     // number of charges that are not yet final
	busy    refusals
	spared  bool // charges were refunded once because the server failed a check
}

// Resume returns a budget that starts with the charges from earlier processes.
func Resume(charged, dataCharged int) Budget {
	return Budget{Charged: charged, DataCharged: dataCharged, earlier: charged}
}

// RefundTakeover refunds the charges that this process made to Config.Retries. It is called after a
// takeover of an open attempt has failed.
func (s *Budget) RefundTakeover() {
	s.Charged = s.earlier
	s.finalize()
}

// CanRetry reports whether the sample gets another attempt after an attempt that ended with kind k.
// The kind must be one that is always free or always charged.
func (s *Budget) CanRetry(k Kind, cfg Config) bool {
	switch k {
	case Gone:
		return true
	case Policy:
		return s.DataCharged < cfg.DataRetries
	default:
		return s.covers(1, cfg)
	}
}

// covers reports whether the budget covers n more charges to Config.Retries.
func (s *Budget) covers(n int, cfg Config) bool { return s.Charged+n <= cfg.Retries }

// charge charges an attempt to Config.Retries. If the failure belongs to a series, the charge
// becomes final when the series is over.
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

// settle refunds the charges for a series that tripped the breaker, and makes all other charges
// final. It does nothing until the series is over.
func (s *Budget) settle() {
	if s.series == nil || !s.series.over {
		return
	}
	if s.series.down && !s.series.poisoned {
		s.refund()
	}
	s.finalize()
}

// refund refunds the charges that are not yet final.
func (s *Budget) refund() {
	s.Charged -= s.held
	s.finalize()
}

func (s *Budget) finalize() { s.series, s.held = nil, 0 }

// refusals counts successive refusals of a sample.
type refusals struct {
	since        time.Time // time of the first refusal
	n            int
	checksPassed int // number of passed checks since the last failed check
}

// After checkAfter refusals, each further refusal is followed by a check. A check can pass only
// because a slot has just become free, so the sample is charged only after clearAfter passed checks
// in a row.
const (
	checkAfter = 5
	clearAfter = 3
)
