package limit

import (
	"slices"
	"time"
)

// Refused tells that the server turned a request of the sample with this key away: why
// is RateLimited, Unavailable, or Connection where it took none. A sample that is turned
// away again, after others were finished meanwhile, is one that the server does not take
// whatever the limit is: that is no cut.
func (c *Controller) Refused(now time.Time, key string, why Reason) Change {
	finished, again := c.turned[key]
	if c.turned == nil || len(c.turned) >= maxTurned {
		c.turned = make(map[string]int)
	}
	c.turned[key] = c.finished
	if again && c.finished > finished && why != Connection {
		return Change{}
	}
	return c.cut(now, cutBy, why)
}

// maxTurned bounds the samples that are remembered as turned away: more than ever wait
// for a retry. To forget them costs a cut.
const maxTurned = 4096

// Faulted tells that the server failed, or did not answer in time, for the sample
// with this key while inFlight samples were in flight. By itself that only keeps the
// round from counting: the fault may be anything. But a server that is asked too much
// may have no other word for it (PostgreSQL out of connections is a plain 500 in
// Letta). So where serverError is set, the limit is in use, and as many as a tenth of
// it, at least three, different samples met one within 5 s, it is cut.
func (c *Controller) Faulted(now time.Time, key string, inFlight int, serverError bool) Change {
	c.begin(now)
	c.round.faults++
	if !serverError {
		return Change{}
	}
	c.bursts = slices.DeleteFunc(c.bursts, func(f fault) bool { return f.key == key || now.Sub(f.at) > burstWithin })
	c.bursts = append(c.bursts, fault{key, now})
	open, _ := c.Open(now)
	if float64(inFlight) < bindShare*float64(open) || len(c.bursts) < max(burstLeast, int(burstShare*float64(c.limit))) {
		return Change{}
	}
	c.round.faults-- // cut counts it
	return c.cut(now, cutBy, Overload)
}

// Lost tells that a connection was reset or ended early under the sample with this key.
// One alone only keeps the round from counting: proxies and networks lose connections
// that nobody asked too much of. Where at least two different samples lost one within
// 15 s, and they are a twentieth of all that ended in that time, it is a cut.
func (c *Controller) Lost(now time.Time, key string) Change {
	c.begin(now)
	c.round.faults++
	c.losses = slices.DeleteFunc(c.losses, func(f fault) bool { return f.key == key || now.Sub(f.at) >= lossWithin })
	c.losses = append(c.losses, fault{key, now})
	n := float64(len(c.losses))
	if n < lossLeast || n < lossShare*(n+c.lately.count(now)) {
		return Change{}
	}
	c.round.faults-- // cut counts it
	return c.cut(now, cutBy, Connection)
}

// A tally counts what happened in the last lossWithin, to the accuracy of a rate that
// is even within each of the two spans that it keeps.
type tally struct {
	began     time.Time // of the present span
	now, past float64
}

// turn begins a new span where the present one is over.
func (t *tally) turn(now time.Time) {
	switch age := now.Sub(t.began); {
	case age >= 2*lossWithin:
		*t = tally{began: now}
	case age >= lossWithin:
		*t = tally{began: t.began.Add(lossWithin), past: t.now}
	}
}

func (t *tally) add(now time.Time) {
	t.turn(now)
	t.now++
}

func (t *tally) count(now time.Time) float64 {
	t.turn(now)
	return t.now + t.past*(1-float64(now.Sub(t.began))/float64(lossWithin))
}

// A fault is a failure of the server or of a connection that a sample met.
type fault struct {
	key string
	at  time.Time
}

// Numbers at which the engine's state matters.
const (
	kvGrow, kvHigh, kvFull = 0.6, 0.8, 0.9

	queueShare  = 0.1 // of the limit waiting in the engine's queue
	engineFresh = 15 * time.Second
	engineGone  = 5 * time.Minute
)

// An Engine is one look at the metrics of an inference engine. A negative number is
// one that the engine does not give.
type Engine struct {
	// KVUsage is the part of the KV cache that is in use, 0 to 1: of several engines
	// the highest.
	KVUsage float64
	// Waiting is the number of requests in the queue.
	Waiting float64
	// Preemptions counts the running requests that had to make room since the engine
	// started.
	Preemptions float64
}

// engine is the last look at the engine.
type engine struct {
	Engine
	at      time.Time // zero: never looked at
	counted bool      // Preemptions is one that the next can be compared with
}

// bars says that nothing may grow for what is known of the engine.
func (e *engine) bars(now time.Time, limit int) bool {
	age := now.Sub(e.at)
	switch {
	case e.at.IsZero(), age > engineGone:
		return false // not watched, or not any more
	case age > engineFresh:
		return true
	}
	return e.KVUsage > kvGrow || e.Waiting > queueShare*float64(limit)
}

// Polled tells what a look at the engine's metrics showed. A look that failed is not
// told at all.
func (c *Controller) Polled(now time.Time, e Engine) Change {
	last := c.engine
	c.engine = engine{Engine: e, at: now, counted: e.Preemptions >= 0}
	switch {
	case last.counted && e.Preemptions > last.Preemptions:
		return c.cut(now, cutBy, Preemption)
	case e.KVUsage > kvFull:
		return c.cut(now, cutBy, KVFull)
	case e.KVUsage > kvHigh:
		return c.cut(now, trimBy, KVHigh)
	}
	return Change{}
}
