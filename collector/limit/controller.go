package limit

import (
	"math"
	"time"
)

// The numbers of the package comment.
const (
	defaultStart = 32

	growBy   = 1.05 // per round
	stageTop = 1.25 // growth that is judged together after slow start
	gainPart = 3.0  // a growth by g must make samples finish faster by g / gainPart
	sigmas   = 2.5  // and by so many standard deviations

	bindShare  = 0.9  // of the limit in use
	faultShare = 0.01 // failures that a clean round may have

	minCounted = 16 // samples in a counted round, however low the limit is
	baseRounds = 8  // counted rounds that the rate of the present limit is kept over
	maxJudged  = 8  // counted rounds until a growth has shown no gain
	slowJudged = 2  // and until a doubling has: half of it may be too much
	minHold    = 8  // counted rounds before a growth without gain is tried again
	maxHold    = 64

	cutBy    = 0.8
	trimBy   = 0.95
	debounce = 15 * time.Second
	// minRound keeps rounds of very fast samples from being decided on a moment.
	minRound = time.Second

	openEvery = 5 * time.Second // how often more of a growth is opened
	openShare = 0.1             // of the limit, each time

	burstWithin = 5 * time.Second // server errors that count as one burst
	burstLeast  = 3
	burstShare  = 0.1 // of the limit

	lossWithin = debounce // lost connections that count together: none for two cuts
	lossLeast  = 2
	lossShare  = 0.05 // of what ended meanwhile
)

// Config is what a Controller needs to know.
type Config struct {
	// Max is the highest limit, at least 1.
	Max int
	// Start is the first limit. Default 0: min(32, Max).
	Start int
	// Group is how many samples belong together; that many may always be taken up
	// at once after a growth. Default 0: 1.
	Group int
}

// A phase is what the present round is for.
type phase uint8

const (
	// The samples in flight were started under another limit; what comes next is
	// judging a growth, or steady.
	settling phase = iota
	steady         // counts the rate of a limit that may stay
	climbing       // growth in steps that are not judged yet
	judging        // counts the rate after a growth
)

// A Controller finds the limit of one server. It is not safe for concurrent use.
type Controller struct {
	max, group int

	limit  int
	proven int  // the highest limit that paid off: up to it growth needs no proof
	slow   bool // slow start
	grown  bool // since the last cut

	// open is how many may be in flight by now: it follows a growth in steps.
	open   int
	openAt time.Time // of the last step

	phase phase
	base  rate // at the limit that a growth is compared with, and goes back to
	baseL int
	now   rate // since the growth
	hold  int  // counted rounds until the next growth that must be proven
	wait  int  // what hold becomes after a growth without gain
	round round
	gain  Gain // of the last growth, where it was proven and nothing was lowered since

	lastCut time.Time
	bursts  []fault // server errors of late
	losses  []fault // lost connections of late
	lately  tally   // samples finished of late
	engine  engine

	finished int            // samples, ever
	turned   map[string]int // samples that were turned away: what finished was then
}

// A round counts until as many samples are finished as the limit says.
type round struct {
	began  time.Time
	done   int
	bound  int // of done, how many found the limit in use
	faults int
}

// A rate is a number of samples finished in a time.
type rate struct {
	n      float64
	took   time.Duration
	rounds int
}

func (r *rate) add(n int, took time.Duration) {
	r.n += float64(n)
	r.took += took
	r.rounds++
}

// fade keeps what was counted long ago from weighing more than the present.
func (r *rate) fade() {
	if r.rounds > baseRounds {
		r.n, r.took, r.rounds = r.n/2, r.took/2, r.rounds/2
	}
}

func (r *rate) perSecond() float64 { return r.n / max(r.took.Seconds(), 1e-9) }

// New makes a Controller at its first limit.
func New(cfg Config) *Controller {
	top := max(cfg.Max, 1)
	start := cfg.Start
	if start < 1 {
		start = defaultStart
	}
	start = min(start, top)
	return &Controller{
		max: top, group: max(cfg.Group, 1),
		limit: start, open: start, proven: start, baseL: start,
		slow: true, grown: true, phase: steady, wait: minHold,
	}
}

// Limit is how many samples may be in flight at most.
func (c *Controller) Limit() int { return c.limit }

// Open is how many samples may be in flight at now. After a growth it reaches Limit
// in steps of a tenth of it, or of a group where that is more, every 5 s, so that a
// server never gets all new samples at one moment. next is when it will be more;
// zero where it is all.
func (c *Controller) Open(now time.Time) (n int, next time.Time) {
	step := max(c.group, int(math.Ceil(openShare*float64(c.limit))))
	for c.open < c.limit && now.Sub(c.openAt) >= openEvery {
		c.open = min(c.open+step, c.limit)
		c.openAt = c.openAt.Add(openEvery)
		if now.Sub(c.openAt) >= openEvery { // nobody asked for long
			c.openAt = now
		}
	}
	if c.open < c.limit {
		next = c.openAt.Add(openEvery)
	}
	return c.open, next
}

// A Gain is what a growth of the limit was measured to be good for: samples per second,
// Before at the limit From and After at To.
type Gain struct {
	From, To      int
	Before, After float64
}

// Topped tells what the growth to the highest limit that Config allows was good for. ok
// is false where that was not measured, or did not pay off, or the limit is lower now:
// then nothing is known of what a higher one would do.
func (c *Controller) Topped() (g Gain, ok bool) {
	return c.gain, c.gain.To == c.max && c.limit == c.max
}

// Reopen lets the samples of a server that is back in from a few on, as after a
// growth.
func (c *Controller) Reopen(now time.Time) {
	c.open = 0
	c.openAt = now.Add(-openEvery)
	c.round = round{began: now}
	c.Open(now)
}

// Done tells that the server finished a sample, whatever the sample is worth, while
// inFlight samples were in flight, this one included.
func (c *Controller) Done(now time.Time, inFlight int) Change {
	c.begin(now)
	c.lately.add(now)
	c.finished++
	c.round.done++
	if open, _ := c.Open(now); float64(inFlight) >= bindShare*float64(open) {
		c.round.bound++
	}
	if c.round.done < c.roundSize() || now.Sub(c.round.began) < minRound {
		return Change{}
	}
	r := c.round
	c.round = round{began: now}
	clean := float64(r.faults) <= faultShare*float64(r.done)
	binds := 2*r.bound >= r.done
	if !clean || !binds || c.open < c.limit {
		return Change{}
	}
	return c.next(now, r.done, now.Sub(r.began))
}

// begin starts the first round.
func (c *Controller) begin(now time.Time) {
	if c.round.began.IsZero() {
		c.round.began = now
	}
}

// roundSize is how many samples the present round takes.
func (c *Controller) roundSize() int {
	if c.phase == climbing || c.phase == steady && c.limit < c.proven {
		return c.limit
	}
	return max(c.limit, minCounted)
}

// next says what follows a clean round of n samples.
func (c *Controller) next(now time.Time, n int, took time.Duration) Change {
	switch c.phase {
	case settling:
		if c.limit > c.baseL {
			c.phase, c.now = judging, rate{}
			return Change{}
		}
		c.phase, c.base = steady, rate{}
		return Change{}
	case climbing:
		if float64(c.limit) < stageTop*float64(c.baseL) && c.limit < c.max {
			return c.grow(now)
		}
		c.phase = settling
		return Change{}
	case judging:
		c.now.add(n, took)
		switch c.judge() {
		case gained:
			c.proven = max(c.proven, c.limit)
			c.gain = Gain{c.baseL, c.limit, c.base.perSecond(), c.now.perSecond()}
			c.baseL, c.base, c.phase = c.limit, c.now, steady
			c.hold = 0
			return c.grow(now)
		case lost:
			c.slow = false
			c.putOff()
			return c.set(now, c.baseL, NoGain)
		case untold:
		}
		return Change{}
	case steady:
	}
	c.baseL = c.limit
	c.base.add(n, took)
	c.base.fade()
	if c.hold > 0 {
		c.hold--
	}
	return c.grow(now)
}

// A verdict is what a growth was good for.
type verdict uint8

const (
	untold verdict = iota // cannot be told yet
	gained
	lost
)

func (c *Controller) judge() verdict {
	grown := float64(c.limit)/float64(c.baseL) - 1
	gain := c.now.perSecond()/c.base.perSecond() - 1
	chance := sigmas * math.Sqrt(1/c.base.n+1/c.now.n)
	switch {
	case gain >= grown/gainPart && gain >= chance:
		return gained
	case gain+chance < grown/gainPart, c.now.rounds >= maxJudged, c.slow && c.now.rounds >= slowJudged:
		return lost
	}
	return untold
}

// putOff holds the next growth that must be proven back, longer every time.
func (c *Controller) putOff() {
	c.hold, c.wait = c.wait, min(2*c.wait, maxHold)
}

// grow takes the next step up, unless something speaks against it.
func (c *Controller) grow(now time.Time) Change {
	if c.limit >= c.max || c.engine.bars(now, c.limit) {
		return Change{}
	}
	free := c.limit < c.proven // no proof is needed
	if c.phase == steady && !free && (c.hold > 0 || c.base.n == 0) {
		return Change{}
	}
	if c.slow {
		to := min(2*c.limit, c.max)
		c.phase = settling
		return c.rise(now, to, SlowStart)
	}
	to := min(max(c.limit+1, int(math.Round(growBy*float64(c.limit)))), c.max)
	if free {
		to = min(to, c.proven)
		c.baseL = to
		if to == c.proven {
			c.phase = settling
		}
		return c.rise(now, to, Growth)
	}
	c.phase = climbing
	return c.rise(now, to, Growth)
}

// rise raises the limit; what is new of it opens in steps, the first at once.
func (c *Controller) rise(now time.Time, to int, why Reason) Change {
	ch := Change{c.limit, to, why}
	c.limit, c.grown = to, true
	c.openAt = now.Add(-openEvery)
	c.round = round{began: now}
	c.Open(now)
	return ch
}

// set lowers the limit and lets the samples in flight settle.
func (c *Controller) set(now time.Time, to int, why Reason) Change {
	ch := Change{c.limit, to, why}
	c.limit, c.baseL, c.gain = to, to, Gain{}
	c.open = min(c.open, to)
	c.phase, c.round, c.base = settling, round{began: now}, rate{}
	return ch
}

// cut lowers the limit by a factor, at most once in 15 s.
func (c *Controller) cut(now time.Time, by float64, why Reason) Change {
	c.begin(now)
	c.round.faults++
	if !c.lastCut.IsZero() && now.Sub(c.lastCut) < debounce {
		return Change{}
	}
	c.lastCut, c.slow = now, false
	if c.grown { // the first of a series of cuts says where it began to be too much
		if c.limit > c.proven {
			c.putOff()
		}
		c.proven, c.grown = max(min(c.proven, c.limit-1), 1), false
	}
	if c.limit == 1 {
		return Change{}
	}
	return c.set(now, max(min(int(by*float64(c.limit)), c.limit-1), 1), why)
}
