package limit

import (
	"slices"
	"time"
)

// Refused records that the server refused a request of the sample with this key. The parameter why
// is RateLimited, Unavailable or Connection. If the server refuses the same sample again although
// other samples have finished in the meantime, the limit is not the cause. The limit is then not
// cut, unless why is Connection.
func (c *Controller) Refused(now time.Time, key string, why Reason) Change {
	finished, again := c.refusedAt[key]
	if c.refusedAt == nil || len(c.refusedAt) >= maxTurned {
		c.refusedAt = make(map[string]int)
	}
	c.refusedAt[key] = c.finished
	if again && c.finished > finished && why != Connection {
		return Change{}
	}
	return c.cut(now, cutBy, why)
}

// maxTurned bounds the size of Controller.refusedAt. It is larger than the number of samples that
// can wait for a retry. Clearing the map causes at most one unnecessary cut.
const maxTurned = 4096

// Faulted records that the server failed, or did not answer in time, for the sample with this key.
// A single fault only makes the round unclean. But some servers answer with a plain server error
// when they are overloaded. For example, Letta does so when its PostgreSQL has no connection left.
// So the limit is cut if it is in use and enough samples hit a server error within 5 s. Enough
// means at least three samples, and at least a tenth of the limit.
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
	c.round.faults-- // cut counts the fault again
	return c.cut(now, cutBy, Overload)
}

// Lost records that a connection of the sample with this key was reset or ended early. A single
// lost connection only makes the round unclean. Networks also lose connections when the server is
// not overloaded. The limit is cut if enough different samples lost a connection within 15 s.
// Enough means at least two samples, and at least a twentieth of all samples that ended in that
// time.
func (c *Controller) Lost(now time.Time, key string) Change {
	c.begin(now)
	c.round.faults++
	c.losses = slices.DeleteFunc(c.losses, func(f fault) bool { return f.key == key || now.Sub(f.at) >= lossWithin })
	c.losses = append(c.losses, fault{key, now})
	n := float64(len(c.losses))
	if n < lossLeast || n < lossShare*(n+c.lately.count(now)) {
		return Change{}
	}
	c.round.faults-- // cut counts the fault again
	return c.cut(now, cutBy, Connection)
}

// A tally estimates the number of events in the most recent period of length lossWithin. It counts
// the events in two such periods and assumes a constant rate within each period.
type tally struct {
	began     time.Time // time at which the current period began
	now, past float64
}

// The method turn begins a new period if the current period is over.
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

// A fault is a failure of the server, or a lost connection, that a sample hit.
type fault struct {
	key string
	at  time.Time
}

// The constants for engines. See the package comment.
const (
	kvGrow, kvHigh, kvFull = 0.6, 0.8, 0.9

	queueShare  = 0.1 // share of the limit that can wait in the engine's queue
	engineFresh = 15 * time.Second
	engineGone  = 5 * time.Minute
)

// An Engine contains the metrics from one poll of an inference engine. A negative number means
// unknown.
type Engine struct {
	// KVUsage is the used fraction of the KV cache. If there are several engines, KVUsage is the
	// highest fraction.
	KVUsage float64
	// Waiting is the number of requests in the engine's queue.
	Waiting float64
	// Preemptions counts the running requests that were put back into the queue since the engine
	// started.
	Preemptions float64
}

// engine contains the last poll of the engine.
type engine struct {
	Engine
	at      time.Time // zero if never polled
	counted bool      // Preemptions can be compared with the next poll
}

func (e *engine) blocks(now time.Time, limit int) bool {
	age := now.Sub(e.at)
	switch {
	case e.at.IsZero(), age > engineGone:
		return false // the engine is not watched, or is no longer watched
	case age > engineFresh:
		return true
	}
	return e.KVUsage > kvGrow || e.Waiting > queueShare*float64(limit)
}

// Polled records a successful poll of the engine's metrics.
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
