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
	sigmas   = 2.5  // and by this many standard deviations

	bindShare  = 0.9  // the share of the limit from which it counts as in use
	faultShare = 0.01 // the share of failures that a clean round may have

	minCounted = 16 // samples in a counted round, however low the limit is
	baseRounds = 8  // counted rounds over which the rate of the present limit is kept
	maxJudged  = 8  // counted rounds after which a growth has gained nothing
	slowJudged = 2  // the same after a doubling, half of which may be too much
	minHold    = 8  // counted rounds before a growth without gain is tried again
	maxHold    = 64

	cutBy    = 0.8
	trimBy   = 0.95
	debounce = 15 * time.Second
	// minRound is the shortest round: very fast samples would decide on a moment.
	minRound = time.Second

	openEvery = 5 * time.Second // how often more of a growth opens
	openShare = 0.1             // how much of the limit opens each time

	burstWithin = 5 * time.Second // server errors within this count together
	burstLeast  = 3
	burstShare  = 0.1 // of the limit

	lossWithin = debounce // lost connections within this count together, for one cut
	lossLeast  = 2
	lossShare  = 0.05 // of all that ended meanwhile
)

// Config is what a Controller needs to know.
type Config struct {
	// Max is the highest limit, at least 1.
	Max int
	// Start is the first limit. Default 0: min(32, Max).
	Start int
	// Group is how many samples belong together. After a growth at least that many open at
	// once. Default 0: 1.
	Group int
}

// A phase is the purpose of the present round.
type phase uint8

const (
	settling phase = iota // finishes the samples that were started under another limit
	steady                // counts the rate of a limit that may stay
	climbing              // grows in steps that are judged together later
	judging               // counts the rate after a growth
)

// A Controller finds the limit of one server. It is not safe for concurrent use.
type Controller struct {
	max, group int // of Config

	limit  int
	proven int  // the highest limit that was worth it: up to it growth needs no proof
	slow   bool // in slow start
	grown  bool // has grown since the last cut

	open   int       // how many may be in flight now: follows a growth in steps
	openAt time.Time // when the last step was

	phase phase
	base  rate // the rate before a growth
	baseL int  // the limit before a growth, to which it goes back
	now   rate // the rate since the growth
	hold  int  // counted rounds until the next growth that must be proven
	wait  int  // the hold after the next growth without gain
	round round
	gain  Gain // of the last growth if it was proven and nothing was lowered since

	lastCut time.Time
	bursts  []fault // recent server errors
	losses  []fault // recent lost connections
	lately  tally   // recently finished samples
	engine  engine

	finished int            // counts the finished samples
	turned   map[string]int // finished, when the sample with this key was last turned away
}

// A round lasts until as many samples are finished as the limit.
type round struct {
	began  time.Time
	done   int
	used   int // how many of done found the limit in use
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

// fade makes old counts weigh less than new ones.
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

// Limit returns how many samples may be in flight at most.
func (c *Controller) Limit() int { return c.limit }

// Open returns how many samples may be in flight now. After a growth it reaches Limit in steps
// of a tenth of it, or of a group if that is more, every 5 s: a server never gets all new
// samples at one moment. next is when it will be more; zero if it is Limit already.
func (c *Controller) Open(now time.Time) (n int, next time.Time) {
	step := max(c.group, int(math.Ceil(openShare*float64(c.limit))))
	for c.open < c.limit && now.Sub(c.openAt) >= openEvery {
		c.open = min(c.open+step, c.limit)
		c.openAt = c.openAt.Add(openEvery)
		if now.Sub(c.openAt) >= openEvery { // nobody asked for a long time
			c.openAt = now
		}
	}
	if c.open < c.limit {
		next = c.openAt.Add(openEvery)
	}
	return c.open, next
}

// A Gain is what a growth of the limit gained, in samples per second: Before at the limit From,
// and After at the limit To.
type Gain struct {
	From, To      int
	Before, After float64
}

// Topped returns what the growth to Config.Max gained. ok is false if that was not measured, or
// was not worth it, or if the limit is lower now: then nobody knows what a higher one would do.
func (c *Controller) Topped() (g Gain, ok bool) {
	return c.gain, c.gain.To == c.max && c.limit == c.max
}

// Reopen lets in the samples of a server that is back: a few at first, as after a growth.
func (c *Controller) Reopen(now time.Time) {
	c.open = 0
	c.openAt = now.Add(-openEvery)
	c.round = round{began: now}
	c.Open(now)
}

// Done notes that the server finished a sample, good or bad, while inFlight samples were in
// flight, this one included.
func (c *Controller) Done(now time.Time, inFlight int) Change {
	c.begin(now)
	c.lately.add(now)
	c.finished++
	c.round.done++
	if open, _ := c.Open(now); float64(inFlight) >= bindShare*float64(open) {
		c.round.used++
	}
	if c.round.done < c.roundSize() || now.Sub(c.round.began) < minRound {
		return Change{}
	}
	r := c.round
	c.round = round{began: now}
	clean := float64(r.faults) <= faultShare*float64(r.done)
	inUse := 2*r.used >= r.done
	if !clean || !inUse || c.open < c.limit {
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

// roundSize returns how many samples the present round takes.
func (c *Controller) roundSize() int {
	if c.phase == climbing || c.phase == steady && c.limit < c.proven {
		return c.limit
	}
	return max(c.limit, minCounted)
}

// next decides what follows a clean round of n samples.
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
		case worth:
			c.proven = max(c.proven, c.limit)
			c.gain = Gain{c.baseL, c.limit, c.base.perSecond(), c.now.perSecond()}
			c.baseL, c.base, c.phase = c.limit, c.now, steady
			c.hold = 0
			return c.grow(now)
		case noGain:
			c.slow = false
			c.putOff()
			return c.set(now, c.baseL, NoGain)
		case unknown:
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

// A result is whether a growth was worth it.
type result uint8

const (
	unknown result = iota // it needs more rounds
	worth                 // samples finish faster
	noGain                // they do not
)

// judge compares the rate since the growth with the rate before it.
func (c *Controller) judge() result {
	grown := float64(c.limit)/float64(c.baseL) - 1
	gain := c.now.perSecond()/c.base.perSecond() - 1
	chance := sigmas * math.Sqrt(1/c.base.n+1/c.now.n)
	switch {
	case gain >= grown/gainPart && gain >= chance:
		return worth
	case gain+chance < grown/gainPart, c.now.rounds >= maxJudged, c.slow && c.now.rounds >= slowJudged:
		return noGain
	}
	return unknown
}

// putOff delays the next growth that must be proven, longer every time.
func (c *Controller) putOff() {
	c.hold, c.wait = c.wait, min(2*c.wait, maxHold)
}

// grow takes the next step up, if nothing bars it.
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

// rise raises the limit. The new part opens in steps, the first at once.
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
	if c.grown { // the first of a series of cuts shows which limit is too high
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
