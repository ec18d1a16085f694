package collector

import (
	"errors"
	"maps"
	"sync"
	"time"
)

// counters contains the data behind Stats, and the current work of every worker. Most counts need
// one line where the event happens:
//
//	c.counters.update(func(s *Stats) { s.CloseFailures++ })
//
// The methods keep every sample in exactly one of Committed, Filtered, Failed, Skipped and
// Remaining.
type counters struct {
	mu    sync.Mutex
	s     Stats // Planned includes Moved; without Remaining, InFlight, Endpoints, Oldest and LongestInStage
	slots []slot

	filtered map[string]struct{} // samples that will be committed with keep=false

	failures int  // number of failed samples, counted before they are appended; includes the failed samples of earlier processes
	scored   bool // at least one sample was scored
}

// A slot describes the current work of one worker.
type slot struct {
	endpoint int // index of the endpoint
	busy     bool
	at       InFlight
}

func (c *counters) update(f func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.s)
}

func (c *counters) snapshot(endpoints []*endpoint) Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.s
	s.ByClass = maps.Clone(c.s.ByClass)
	s.FailedByClass = maps.Clone(c.s.FailedByClass)
	s.Remade = maps.Clone(c.s.Remade)
	s.Planned -= s.Moved
	s.Remaining = s.Planned - s.Committed - s.Filtered - s.Failed - s.Skipped
	s.Endpoints = make([]EndpointStats, len(endpoints))
	for i, e := range endpoints {
		s.Endpoints[i] = EndpointStats{Name: e.Name, Limit: e.gate.limit(), Max: e.MaxInFlight, Topped: e.gate.maxGain(), Stages: map[Stage]int{}}
		s.Endpoints[i].Engine, s.Endpoints[i].EngineSeen = e.gate.lastEngine()
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
			s.Oldest = new(sl.at)
		}
		if sl.at.Stage != StageWait && (s.LongestInStage == nil || sl.at.Since.Before(s.LongestInStage.Since)) {
			s.LongestInStage = new(sl.at)
		}
	}
	return s
}

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

func (c *counters) slot(endpoint int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slots = append(c.slots, slot{endpoint: endpoint})
	return len(c.slots) - 1
}

func (c *counters) claim(i int, cl *claim, endpoint string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !cl.place.moved {
		c.s.Claimed++
		c.addFailed(cl.failed, -1)
	}
	c.slots[i].busy = true
	c.slots[i].at = InFlight{TaskID: cl.task.ID, Index: cl.index, Endpoint: endpoint, Since: now, Started: now}
}

func (c *counters) planned(n int) { c.update(func(s *Stats) { s.Planned = max(s.Planned, n) }) }

// survey counts the nth sample by the state in which earlier processes left it. It reports whether
// this process should claim the sample.
func (c *counters) survey(n int, left *SampleState, retryFailed bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.Planned = max(c.s.Planned, n)
	switch {
	case left.Done:
		c.s.Committed++
		c.s.Earlier.Committed++
		return false
	case left.Failed != ClassNone:
		c.addFailed(left.Failed, 1)
		return retryFailed
	}
	return !retryFailed
}

// addFailed adds n to the number of samples that earlier processes left as failed with this class.
func (c *counters) addFailed(class Class, n int) {
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

// unclaim undoes the claim of a sample that an earlier process left as failed. It is called if the
// retry has no result.
func (c *counters) unclaim(failed Class) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addFailed(failed, 1)
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

// ended counts an attempt. The parameter took is its duration. ClassNone means that the attempt
// became data.
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

// remade counts a lost rollout that is collected again. The parameter a is nil if an earlier
// process made the attempt.
func (c *counters) remade(a *attempt, class Class) {
	c.mu.Lock()
	defer c.mu.Unlock()
	why, took := class.String(), time.Duration(0)
	if a != nil {
		took = a.took
		if a.retryReason != "" {
			why = a.retryReason
		}
	}
	r := c.s.Remade[why]
	r.add(took)
	c.s.Remade[why] = r
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

// accept counts a sample before it is appended. It reports whether more than maxFailures samples
// have failed.
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

func (c *counters) refuse(class Class) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.Accepted--
	if class != ClassNone && class != ClassCensored {
		c.failures--
	}
}

// done counts the result of an accepted sample. If an earlier process stored the sample as failed,
// the parameter before is the class of that failure. Otherwise it is ClassNone.
func (c *counters) done(key string, class, before Class, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.Accepted--
	_, filtered := c.filtered[key]
	delete(c.filtered, key)
	switch {
	case errors.Is(err, ErrMoved):
		c.s.Moved++
	case err != nil: // the sample stays unfinished, or stays failed as before
		c.addFailed(before, 1)
	case class == ClassNone && filtered:
		c.s.Filtered++
	case class == ClassNone:
		c.s.Committed++
	case class == ClassCensored:
		c.s.Skipped++
	default:
		c.s.Failed++
		c.s.ByClass[class]++
	}
}

// unfilter removes keys from c.filtered. The keys belong to samples that this process does not
// append, so the method done never removes these keys.
func (c *counters) unfilter(keys []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range keys {
		delete(c.filtered, k)
	}
}

func (c *counters) filter(keys []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.filtered == nil {
		c.filtered = make(map[string]struct{})
	}
	for _, k := range keys {
		c.filtered[k] = struct{}{}
	}
}

// addEarlier adds to the counts of samples from earlier processes: committed is the number with
// keep=true, and filtered the number with keep=false.
func (c *counters) addEarlier(committed, filtered int) {
	c.update(func(s *Stats) {
		s.Committed += committed
		s.Earlier.Committed += committed
		s.Filtered += filtered
		s.Earlier.Filtered += filtered
	})
}
