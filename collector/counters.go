package collector

import (
	"maps"
	"sync"
	"time"

	"github.com/rollout-rl/rollout/tokenize"
)

// counters holds what Stats shows. Its mutex is held for a few instructions at a
// time and never while anything else is called.
type counters struct {
	mu    sync.Mutex
	s     Stats // without Remaining, Endpoints, Oldest and LongestInStage
	slots []slot
	// failures counts failed samples that the sink accepted or is about to.
	failures int
	scored   bool // a sample was
}

// A slot is what one worker does. It is busy while task is set.
type slot struct {
	endpoint int
	busy     bool
	at       InFlight
}

func (c *counters) update(f func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.s)
}

// snapshot adds what follows from the rest.
func (c *counters) snapshot(endpoints []*endpoint) Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.s
	s.ByClass = maps.Clone(c.s.ByClass)
	s.FailedByClass = maps.Clone(c.s.FailedByClass)
	s.Rerolls = maps.Clone(c.s.Rerolls)
	s.Remaining = s.Planned - s.Committed - s.Failed - s.Skipped
	s.Endpoints = make([]EndpointStats, len(endpoints))
	for i, e := range endpoints {
		s.Endpoints[i] = EndpointStats{Name: e.Name, Limit: e.gate.limit(), Max: e.MaxInFlight, Topped: e.gate.topped(), Stages: map[Stage]int{}}
		s.Endpoints[i].Engine, s.Endpoints[i].EngineSeen = e.gate.seen()
		s.Endpoints[i].Down, s.Endpoints[i].Lost = e.state()
		s.Endpoints[i].Mute = e.removals.mute.isUp()
	}
	for i := range c.slots {
		sl := &c.slots[i]
		if !sl.busy {
			continue
		}
		s.InFlight++
		s.Endpoints[sl.endpoint].InFlight++
		s.Endpoints[sl.endpoint].Stages[sl.at.Stage]++
		if sl.at.Attempt > 0 && sl.at.Stage == StageWait {
			s.Endpoints[sl.endpoint].Waiting++
		}
		if s.Oldest == nil || sl.at.Started.Before(s.Oldest.Started) {
			at := sl.at
			s.Oldest = &at
		}
		if sl.at.Stage != StageWait && (s.LongestInStage == nil || sl.at.Since.Before(s.LongestInStage.Since)) {
			at := sl.at
			s.LongestInStage = &at
		}
	}
	return s
}

// inFlight copies what the busy slots do.
func (c *counters) inFlight() []InFlight {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []InFlight
	for i := range c.slots {
		if c.slots[i].busy {
			all = append(all, c.slots[i].at)
		}
	}
	return all
}

// slot adds a slot for a worker of the endpoint with this index.
func (c *counters) slot(endpoint int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slots = append(c.slots, slot{endpoint: endpoint})
	return len(c.slots) - 1
}

func (c *counters) claim(i int, cl *claim, endpoint string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !cl.passed {
		c.s.Claimed++
		c.undone(cl.failed, -1)
	}
	c.slots[i].busy = true
	c.slots[i].at = InFlight{TaskID: cl.task.ID, Index: cl.index, Endpoint: endpoint, Since: now, Started: now}
}

// planned notes that so many samples were read.
func (c *counters) planned(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.Planned = max(c.s.Planned, n)
}

// survey counts what earlier processes left of the nth sample, and says whether it is
// to be taken up.
func (c *counters) survey(n int, left *Left, retryFailed bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.Planned = max(c.s.Planned, n)
	switch {
	case left.Done:
		c.s.Committed++
		c.s.Earlier.Committed++
		return false
	case left.Failed != ClassNone:
		c.undone(left.Failed, 1)
		return retryFailed
	}
	return !retryFailed
}

// undone adds n to the failures of earlier processes with this class.
func (c *counters) undone(class Class, n int) {
	switch class {
	case ClassNone:
	case ClassCensored:
		c.s.Skipped += n
		c.s.Earlier.Skipped += n
	default:
		c.failures += n
		c.s.Failed += n
		c.s.Earlier.Failed += n
		c.s.ByClass[class] += n
		if c.s.ByClass[class] == 0 {
			delete(c.s.ByClass, class)
		}
	}
}

// giveBack undoes the claim of a failed sample that was not mended.
func (c *counters) giveBack(failed Class) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.undone(failed, 1)
}

func (c *counters) attempt(k Kind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.Attempts++
	switch k {
	case KindFirst, KindReattach:
	case KindInfraRetry:
		c.s.Retries++
		c.s.InfraRetries++
	case KindDataRetry:
		c.s.Retries++
		c.s.DataRetries++
	}
}

// reattached counts an attempt of an earlier process.
func (c *counters) reattached(gone bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if gone {
		c.s.Gone++
	} else {
		c.s.Reattached++
	}
}

// ended counts an attempt that was under way for so long; ClassNone is one that became
// data.
func (c *counters) ended(class Class, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch class {
	case ClassNone:
		c.s.Kept.add(took)
	case ClassCancelled:
	default:
		c.s.FailedByClass[class]++
	}
}

// rerolled counts an attempt that is made again, nil where it was none of this process.
func (c *counters) rerolled(a *attempt, class Class) {
	c.mu.Lock()
	defer c.mu.Unlock()
	why, took := class.String(), time.Duration(0)
	if a != nil {
		took = a.took
		if a.why != "" {
			why = a.why
		}
	}
	r := c.s.Rerolls[why]
	r.add(took)
	c.s.Rerolls[why] = r
}

func (c *counters) stage(i, attempt int, s Stage, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := &c.slots[i].at
	at.Attempt, at.Stage, at.Since = attempt, s, now
}

func (c *counters) release(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slots[i].busy = false
}

// accept counts a sample that is about to go to the sink, and says whether it is
// one failure too many.
func (c *counters) accept(class Class, maxFailures int) (tooMany bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.Accepted++
	if class == ClassNone || class == ClassCensored {
		return false
	}
	c.failures++
	return maxFailures > 0 && c.failures > maxFailures
}

// refuse takes accept back.
func (c *counters) refuse(class Class) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.Accepted--
	if class != ClassNone && class != ClassCensored {
		c.failures--
	}
}

// done counts what the sink says about a sample that it accepted. before is the class
// of the failure that the dataset has of it.
func (c *counters) done(class, before Class, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.Accepted--
	switch {
	case err != nil: // it remains, or is what it was
		c.undone(before, 1)
	case class == ClassNone:
		c.s.Committed++
	case class == ClassCensored:
		c.s.Skipped++
	default:
		c.s.Failed++
		c.s.ByClass[class]++
	}
}

// A gain is what one sample adds to the counts of rows and tokens.
type gain struct {
	rows, lostCalls  int
	lesser           int // rows of lost answers that are not exact
	sampled, trained int64
	empty            bool
	leftOut
}

// leftOut counts what the aligner kept out of the rows of one sample: calls beyond
// the row limit and their sampled tokens, and rows without a token to train on.
type leftOut struct {
	cutCalls, emptyRows int
	cut                 int64
}

// gainOf counts s.
func gainOf(s *tokenize.Sample) gain {
	g := gain{rows: len(s.Rows), empty: len(s.Rows) == 0 && len(s.Failures) == 0}
	for i := range s.Rows {
		r := &s.Rows[i]
		for _, m := range r.LossMask {
			g.trained += int64(m)
		}
		g.sampled += int64(r.Unscored) + int64(r.Trimmed)
		if r.Flags&tokenize.FlagReattached != 0 && r.Grade != tokenize.Exact {
			g.lesser++
		}
	}
	g.sampled += g.trained
	for i := range s.Failures {
		f := &s.Failures[i]
		g.sampled += int64(len(f.OutputIDs))
		if f.Call >= 0 {
			g.lostCalls++
		}
	}
	return g
}

func (c *counters) gained(g gain) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.Rows += g.rows
	c.s.Downgraded += g.lesser
	c.s.LostCalls += g.lostCalls
	c.s.Sampled += g.sampled
	c.s.Trained += g.trained
	c.s.CutCalls += g.cutCalls
	c.s.Cut += g.cut
	c.s.EmptyRows += g.emptyRows
	if g.empty {
		c.s.Empty++
	}
}
