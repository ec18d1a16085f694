package breaker

import (
	"slices"
	"time"
)

// Config configures a Breaker. The zero value allows no retries and no outage.
type Config struct {
	// Outage is how long the server can be down before the Breaker gives it up.
	Outage time.Duration
	// Watched is true if the caller polls a server that is down. In that case, the Breaker gives
	// the server up only when the caller calls Breaker.Lose.
	Watched bool
	// Checks is true if the caller can check the server.
	Checks bool
	// Retries and DataRetries bound the number of charges for failures of the infrastructure and of
	// the policy.
	Retries, DataRetries int
	// BusyMax is how long the server can refuse a sample before the sample is charged.
	BusyMax time.Duration
}

// minTrip is the smallest number of failures in a row that can trip the breaker.
const minTrip = 3

// A Breaker tracks whether one server is up. It is not safe for concurrent use.
type Breaker struct {
	cfg Config

	answered bool      // the server has answered at least once
	series   *series   // failures since the last answer; nil if there are none
	noAgent  bool      // the last failure was in the stage Opening
	down     bool      // the breaker has tripped
	reported bool      // Change.Down was reported
	since    time.Time // when the breaker tripped
	lost     bool

	poisoned map[string]bool // keys of samples that fail although the server works
}

// A series is a sequence of failures of a server without an answer between them. It can trip the
// breaker.
type series struct {
	n             int
	keys          []string // keys of the failed samples, in order of the first failure
	began         time.Time
	serverAtFault bool // the first sample alone cannot have caused the failures
	down          bool // the series tripped the breaker
	over          bool // the series tripped the breaker, or the server has answered
	poisoned      bool // a check showed that the samples caused the failures
}

// New returns a Breaker for a server whose state is unknown.
func New(cfg Config) *Breaker { return &Breaker{cfg: cfg} }

// State reports whether the server counts as down, and whether it has been given up.
func (b *Breaker) State() (down, lost bool) { return b.down, b.lost }

// Ended returns the decision about a sample after the end e of an attempt. The parameter s is the
// sample's budget.
func (b *Breaker) Ended(s *Budget, e End, now time.Time) Decision {
	if e.Kind != Busy {
		s.busy = refusals{}
	}
	d := Decision{end: e, at: now}
	switch e.Kind {
	case Done:
		d.Change = b.Answered(e.Replied)
	case Policy:
		d.Change = b.Answered(e.answered(now))
		d.Verdict = Fail
		if s.CanRetry(Policy, b.cfg) {
			s.DataCharged++
			d.Verdict, d.Charged = Retry, true
		}
	case Final:
		d.Change, d.Verdict = b.Answered(e.answered(now)), Fail
	case Gone:
		d.Change, d.Verdict = b.Answered(now), Retry
	case LostAnswer:
		d.Change, d.Charged = b.Answered(e.Replied), true
		b.charge(s, &d)
	case Busy:
		d.Change = b.Answered(now)
		b.refused(s, &d, now)
	case Own:
		d.Charged = true
		b.charge(s, &d)
	case Moved:
		b.charge(s, &d)
	case Fault:
		b.failed(s, &d, now)
	case Cut:
		d.Verdict = Fail
	case Cancelled, Fatal:
		d.Verdict = Stop
	}
	return d
}

// charge charges the sample if d.Charged is set, and allows a retry unless the budget is exceeded.
func (b *Breaker) charge(s *Budget, d *Decision) {
	d.Next, d.Backoff = Nothing, true
	if d.Charged {
		s.charge(d.series)
	}
	switch {
	case s.covers(0, b.cfg):
		d.Verdict = Retry
	case d.Charged && d.series != nil && !d.series.poisoned:
		d.Next, d.Verdict = Wait, Fail
	default:
		d.Verdict = Fail
	}
}

// Waited updates decision d after the caller has waited, as the step Wait requires. If the server
// has gone down in the meantime, the charges for its failures are refunded. Otherwise, if the
// server has not answered, the next step is a check of the server, but only once per sample.
func (b *Breaker) Waited(s *Budget, d Decision) Decision {
	d.Next, d.Change = Nothing, Change{}
	switch {
	case b.down:
		b.refund(s, &d)
	case b.cfg.Checks && !s.spared && !d.series.over:
		d.Next, d.last = Check, true
	}
	return d
}

// refund refunds the charges for the failures of a server that is down.
func (b *Breaker) refund(s *Budget, d *Decision) {
	s.refund()
	d.Charged = false
	b.charge(s, d)
}

// checkedLast implements Checked for a sample that has no retry left. A failed check refunds the
// sample's charges only once, because the sample itself could take the server down.
func (b *Breaker) checkedLast(s *Budget, d Decision, works, stopping bool) Decision {
	t := d.series
	if !b.down && !works && !stopping && !t.over {
		b.down, b.reported, b.since = true, true, d.at
		t.down, t.over = true, true
		d.Change = Change{Tripped: true, Down: true}
	}
	if b.down {
		s.spared = true
		b.refund(s, &d)
	}
	return d
}

func (b *Breaker) refused(s *Budget, d *Decision, now time.Time) {
	r := &s.busy
	if r.since.IsZero() {
		r.since = now
	}
	r.n++
	d.Charged = now.Sub(r.since) >= b.cfg.BusyMax
	if !d.Charged && r.n >= checkAfter {
		d.Next = Check
		return
	}
	d.CheckPassed = r.checksPassed > 0
	b.charge(s, d)
}

// failed counts a failure of the infrastructure. It sets the verdict, unless a check must come
// first.
func (b *Breaker) failed(s *Budget, d *Decision, now time.Time) {
	if b.poisoned[d.end.Key] {
		d.Charged = true
	} else {
		b.count(d, now)
	}
	s.settle()
	switch {
	case b.lost:
		d.Verdict, d.Charged = PassOn, false
		b.reported = b.reported || d.tripped
		d.Change.Down = d.tripped
	case d.tripped || d.end.Probe:
		d.Next = Check
		return
	default:
		b.charge(s, d)
	}
}

// count adds a failure to the series. It trips the breaker at the threshold.
func (b *Breaker) count(d *Decision, now time.Time) {
	e := &d.end
	if b.series == nil {
		b.series = &series{began: now}
	}
	t := b.series
	t.n++
	if !slices.Contains(t.keys, e.Key) {
		t.keys = append(t.keys, e.Key)
	}
	b.noAgent = e.Stage == Opening
	t.serverAtFault = t.serverAtFault || e.Stage == Opening || len(t.keys) > 1 || !b.answered
	if !b.down && t.serverAtFault && t.n >= b.threshold(e) {
		b.down, b.reported, b.since = true, false, now
		t.down, t.over, d.tripped = true, true, true
		d.Change.Tripped = true
	}
	d.series = t
	d.Charged = b.answered && !b.down
	if !b.lost && !b.cfg.Watched && b.down && now.Sub(b.since) >= b.cfg.Outage {
		b.lost, d.Change.Lost = true, true
	}
}

// threshold returns the number of failures in a row that trips the breaker. It is the number of
// samples in flight, so that each of them could have failed once. Before the first answer, the
// threshold is e.Limit, because not all samples are in flight yet.
func (b *Breaker) threshold(e *End) int {
	n := e.Limit
	if b.answered {
		n = min(n, e.InHand)
	}
	return max(n, minTrip)
}

// Checked completes decision d after the caller has checked the server, as the step Check requires.
// works is true if the server passed the check. stopping is true if a stop of the run interrupted
// the check.
func (b *Breaker) Checked(s *Budget, d Decision, works, stopping bool) Decision {
	d.Next, d.Change = Nothing, Change{}
	switch {
	case d.last:
		return b.checkedLast(s, d, works, stopping)
	case d.end.Kind == Busy:
		r := &s.busy
		r.checksPassed++
		if !works {
			r.checksPassed = 0
		}
		d.CheckPassed, d.Charged = r.checksPassed > 0, r.checksPassed >= clearAfter
	case works:
		d.Change = b.reset()
		d.Charged = true
	default:
		if d.tripped && b.down && !b.reported {
			b.reported, d.Change.Down = true, true
		}
		if !stopping && !b.cfg.Watched && b.down && !b.answered && !b.lost {
			b.lost, d.Change.Lost = true, true
			d.Verdict, d.Charged = PassOn, false
			return d
		}
	}
	b.charge(s, &d)
	return d
}

// reset records that the server passed a check, so the samples of the series caused the failures.
func (b *Breaker) reset() Change {
	if t := b.series; t != nil {
		if b.poisoned == nil {
			b.poisoned = make(map[string]bool)
		}
		for _, key := range t.keys {
			b.poisoned[key] = true
		}
		t.poisoned = true
	}
	return b.up()
}

// Answered records that the server answered at the given time. An answer from before the series
// does not end the series, even if the answer is recorded later.
func (b *Breaker) Answered(then time.Time) Change {
	if b.series != nil && !then.After(b.series.began) {
		b.answered = true
		return Change{}
	}
	return b.up()
}

func (b *Breaker) up() Change {
	ch := Change{Reset: b.down, Up: b.down && b.reported}
	if b.series != nil {
		b.series.over = true
	}
	b.answered, b.series, b.down, b.reported = true, nil, false, false
	return ch
}

// AgentMade records that an agent was made. This counts as an answer only if the last failure was
// in the stage Opening. After a failure in a later stage, a new agent proves little, because a
// server whose engine is down can still make agents.
func (b *Breaker) AgentMade(now time.Time) Change {
	if b.answered && b.down && b.noAgent {
		return b.Answered(now)
	}
	return Change{}
}

// Silent records that the server does not answer at all. This trips the breaker at once.
func (b *Breaker) Silent(now time.Time) Change {
	if b.down || b.lost {
		return Change{}
	}
	if b.series == nil {
		b.series = new(series)
	}
	b.series.began, b.series.down, b.series.over = now, true, true // ignore earlier answers
	b.noAgent, b.down, b.reported, b.since = true, true, true, now
	return Change{Tripped: true, Down: true}
}

// Overdue reports whether the server has been down for Config.Outage, and whether it is down and
// has never answered.
func (b *Breaker) Overdue(now time.Time) (overdue, never bool) {
	return b.down && now.Sub(b.since) >= b.cfg.Outage, b.down && !b.answered
}

// Lose gives the server up. The Change is zero if the server had already been given up.
func (b *Breaker) Lose() Change {
	ch := Change{Lost: !b.lost}
	b.lost = true
	return ch
}

// Detach detaches the budget from this server, before the sample moves to another server.
func (b *Breaker) Detach(s *Budget) {
	s.settle()
	s.finalize()
}
