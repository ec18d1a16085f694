package pace

// LagMost is the last bucket of Stats.Lags: it counts this lag and all above it.
const LagMost = 32

// Stats is a snapshot of a Pacer. Counts include what the caller told of earlier processes.
type Stats struct {
	// Version is the present version; -1 if none was set.
	Version int32
	// Paused reports a Pause. Held is what the next group waits for now; NotHeld if it waits
	// for a worker, or if there is none.
	Paused bool
	Held   Hold

	// Begun counts groups, and is the sum of those in progress, Informative, Filtered and
	// Failed.
	Begun, Informative, Filtered, Failed int
	// Ahead counts the groups in progress and those given and not acknowledged.
	Ahead int
	// Until is Config.UntilGroups. Enough reports that as many informative groups are there.
	Until  int
	Enough bool

	// Lags counts the groups that arrived, by their lag. The last bucket counts all above it
	// too. Groups of a run without versions are in none.
	Lags [LagMost + 1]int
}

// Whole counts the groups that are whole.
func (s *Stats) Whole() int { return s.Informative + s.Filtered + s.Failed }

// LagCounts is Lags up to the last that is not 0. It is never nil.
func (s *Stats) LagCounts() []int {
	n := len(s.Lags)
	for n > 0 && s.Lags[n-1] == 0 {
		n--
	}
	return append([]int{}, s.Lags[:n]...)
}

// Stats returns a snapshot.
func (p *Pacer) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.done
	s.Version, s.Paused, s.Held = p.versions.now, p.paused, p.held
	s.Ahead, s.Until, s.Enough = len(p.groups), p.cfg.UntilGroups, p.satisfied()
	return s
}
