package limit

import (
	"math"
	"time"
)

// The constants that the package comment describes.
const (
	defaultStart = 32

	growBy   = 1.05 // per round
	stageTop = 1.25 // after slow start, a growth by this factor is judged as a whole
	gainPart = 3.0  // a growth by g must raise samples per second by g / gainPart
	sigmas   = 2.5  // and the rise must be at least this many standard deviations

	bindShare  = 0.9  // share of the limit that must be in flight for the limit to count as in use
	faultShare = 0.01 // highest share of failures in a clean round

	minCounted = 16 // smallest number of samples in a counted round, even if the limit is lower
	baseRounds = 8  // counted rounds over which the rate of the current limit is averaged
	maxJudged  = 8  // maximum number of counted rounds in which a growth can show a gain
	slowJudged = 2  // the same maximum during slow start
	minHold    = 8  // counted rounds to wait after a growth without gain
	maxHold    = 64

	cutBy    = 0.8
	trimBy   = 0.95
	debounce = 15 * time.Second
	// minRound is the shortest duration of a round. Otherwise very fast samples would end a round
	// within moments.
	minRound = time.Second

	openEvery = 5 * time.Second // interval between the steps that admit the added samples after a growth
	openShare = 0.1             // share of the limit that each step admits

	burstWithin = 5 * time.Second // server errors within this time are counted together
	burstLeast  = 3
	burstShare  = 0.1 // share of the limit

	lossWithin = debounce // lost connections within this time are counted together
	lossLeast  = 2
	lossShare  = 0.05 // share of all samples that ended in that time
)

// Config configures a Controller.
type Config struct {
	// Max is the highest possible limit, at least 1.
	Max int
	// Start is the initial limit. Default 0: min(32, Max).
	Start int
	// Group is the number of samples per group. After a growth, the Controller admits the added
	// samples in steps of at least Group samples. Default 1.
	Group int
}

// A phase is the purpose of the current round.
type phase uint8

const (
	settling phase = iota // waits until the samples that started under another limit are finished
	steady                // measures the rate of the current limit
	climbing              // grows in steps, which are judged later as a whole
	judging               // measures the rate after a growth
)

// A Controller finds the limit of one server. It is not safe for concurrent use.
type Controller struct {
	max, group int // from Config

	limit  int
	proven int  // the proven limit; a growth up to it needs no proof
	slow   bool // in slow start
	grown  bool // has grown since the last cut

	open   int       // number of samples allowed in flight now; follows limit in steps after a growth
	openAt time.Time // time of the last step

	phase     phase
	base      rate // the rate before a growth
	baseLimit int  // limit before a growth, restored if there is no gain
	now       rate // the rate since the growth
	hold      int  // counted rounds until the next growth that needs proof
	wait      int  // value of hold after the next growth without gain
	round     round
	gain      Gain // gain of the last growth, if it was proven and the limit has not been lowered since

	lastCut time.Time
	bursts  []fault // recent server errors
	losses  []fault // recent lost connections
	lately  tally   // recently finished samples
	engine  engine

	finished  int            // number of finished samples
	refusedAt map[string]int // by sample key: value of finished when the sample was last refused
}

// A round lasts until the number of finished samples reaches the limit.
type round struct {
	began  time.Time
	done   int
	used   int // number of samples that finished while the limit was in use
	faults int
}

// A rate is a number of finished samples and the time in which they finished.
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

func (r *rate) fade() {
	if r.rounds > baseRounds {
		r.n, r.took, r.rounds = r.n/2, r.took/2, r.rounds/2
	}
}

func (r *rate) perSecond() float64 { return r.n / max(r.took.Seconds(), 1e-9) }

// New returns a Controller with its initial limit.
func New(cfg Config) *Controller {
	top := max(cfg.Max, 1)
	start := cfg.Start
	if start < 1 {
		start = defaultStart
	}
	start = min(start, top)
	return &Controller{
		max: top, group: max(cfg.Group, 1),
		limit: start, open: start, proven: start, baseLimit: start,
		slow: true, grown: true, phase: steady, wait: minHold,
	}
}

// Limit returns the current limit.
func (c *Controller) Limit() int { return c.limit }

// Open returns the number of samples that can be in flight now. After a growth, this number rises
// to Limit in one step every 5 s, so that a server never gets all new samples at once. A step is a
// tenth of Limit, or a whole group if that is more. The result next is the time of the next step,
// or zero if n equals Limit.
func (c *Controller) Open(now time.Time) (n int, next time.Time) {
	step := max(c.group, int(math.Ceil(openShare*float64(c.limit))))
	for c.open < c.limit && now.Sub(c.openAt) >= openEvery {
		c.open = min(c.open+step, c.limit)
		c.openAt = c.openAt.Add(openEvery)
		if now.Sub(c.openAt) >= openEvery { // Open was not called for a long time
			c.openAt = now
		}
	}
	if c.open < c.limit {
		next = c.openAt.Add(openEvery)
	}
	return c.open, next
}

// A Gain is the result of raising the limit from the value From to the value To. Before and After
// are rates in samples per second.
type Gain struct {
	From, To      int
	Before, After float64
}

// MaxGain returns the gain from the growth to Config.Max. The result ok is false if no such growth
// has shown a gain, or if the limit is lower now.
func (c *Controller) MaxGain() (g Gain, ok bool) {
	return c.gain, c.gain.To == c.max && c.limit == c.max
}

// Reopen admits samples again when a server is back. It admits only a few samples at first, as
// after a growth.
func (c *Controller) Reopen(now time.Time) {
	c.open = 0
	c.openAt = now.Add(-openEvery)
	c.round = round{began: now}
	c.Open(now)
}

// Done records that the server finished a sample, with or without success. The parameter inFlight
// includes that sample.
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

func (c *Controller) begin(now time.Time) {
	if c.round.began.IsZero() {
		c.round.began = now
	}
}

func (c *Controller) roundSize() int {
	if c.phase == climbing || c.phase == steady && c.limit < c.proven {
		return c.limit
	}
	return max(c.limit, minCounted)
}

// The method next decides what to do after a clean round of n samples.
func (c *Controller) next(now time.Time, n int, took time.Duration) Change {
	switch c.phase {
	case settling:
		if c.limit > c.baseLimit {
			c.phase, c.now = judging, rate{}
			return Change{}
		}
		c.phase, c.base = steady, rate{}
		return Change{}
	case climbing:
		if float64(c.limit) < stageTop*float64(c.baseLimit) && c.limit < c.max {
			return c.grow(now)
		}
		c.phase = settling
		return Change{}
	case judging:
		c.now.add(n, took)
		switch c.judge() {
		case worth:
			c.proven = max(c.proven, c.limit)
			c.gain = Gain{c.baseLimit, c.limit, c.base.perSecond(), c.now.perSecond()}
			c.baseLimit, c.base, c.phase = c.limit, c.now, steady
			c.hold = 0
			return c.grow(now)
		case noGain:
			c.slow = false
			c.postpone()
			return c.set(now, c.baseLimit, NoGain)
		case unknown:
		}
		return Change{}
	case steady:
	}
	c.baseLimit = c.limit
	c.base.add(n, took)
	c.base.fade()
	if c.hold > 0 {
		c.hold--
	}
	return c.grow(now)
}

type result uint8

const (
	unknown result = iota // more rounds are needed
	worth                 // the growth showed a gain
	noGain                // the growth showed no gain
)

func (c *Controller) judge() result {
	grown := float64(c.limit)/float64(c.baseLimit) - 1
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

// postpone delays the next growth that needs proof. The delay gets longer every time.
func (c *Controller) postpone() {
	c.hold, c.wait = c.wait, min(2*c.wait, maxHold)
}

// grow raises the limit by the next step. It does nothing if the limit is at its maximum, the
// engine blocks the growth, or a growth that needs proof must still wait.
func (c *Controller) grow(now time.Time) Change {
	if c.limit >= c.max || c.engine.blocks(now, c.limit) {
		return Change{}
	}
	free := c.limit < c.proven
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
		c.baseLimit = to
		if to == c.proven {
			c.phase = settling
		}
		return c.rise(now, to, Growth)
	}
	c.phase = climbing
	return c.rise(now, to, Growth)
}

// rise raises the limit. The added samples are admitted in steps, and the first step is immediate.
func (c *Controller) rise(now time.Time, to int, why Reason) Change {
	ch := Change{c.limit, to, why}
	c.limit, c.grown = to, true
	c.openAt = now.Add(-openEvery)
	c.round = round{began: now}
	c.Open(now)
	return ch
}

// The method set lowers the limit and starts the phase settling.
func (c *Controller) set(now time.Time, to int, why Reason) Change {
	ch := Change{c.limit, to, why}
	c.limit, c.baseLimit, c.gain = to, to, Gain{}
	c.open = min(c.open, to)
	c.phase, c.round, c.base = settling, round{began: now}, rate{}
	return ch
}

// The method cut lowers the limit by a factor, at most once in 15 s.
func (c *Controller) cut(now time.Time, by float64, why Reason) Change {
	c.begin(now)
	c.round.faults++
	if !c.lastCut.IsZero() && now.Sub(c.lastCut) < debounce {
		return Change{}
	}
	c.lastCut, c.slow = now, false
	if c.grown { // the first of several cuts shows which limit was too high
		if c.limit > c.proven {
			c.postpone()
		}
		c.proven, c.grown = max(min(c.proven, c.limit-1), 1), false
	}
	if c.limit == 1 {
		return Change{}
	}
	return c.set(now, max(min(int(by*float64(c.limit)), c.limit-1), 1), why)
}
