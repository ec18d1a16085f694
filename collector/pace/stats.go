package pace

import "time"

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
	Begun, InProgress, Informative, Filtered, Failed int
	// Ahead counts the groups in progress and those given and not acknowledged. Given is the
	// second part of it.
	Ahead, Given int
	// Until is Config.UntilGroups. Enough reports that as many informative groups are there.
	Until  int
	Enough bool

	// Lags counts the groups that arrived, by their lag. The last bucket counts all above it
	// too. Groups of a run without versions are in none.
	Lags [LagMost + 1]int
	// GroupTakes is D and VersionLasts T of the package comment; 0 if they are not known.
	GroupTakes, VersionLasts time.Duration
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
	s.InProgress, s.Ahead = p.progress, len(p.groups)
	s.Given = s.Ahead - s.InProgress
	s.Until, s.Enough = p.cfg.UntilGroups, p.satisfied()
	s.GroupTakes, s.VersionLasts = seconds(p.times.takes(p.lived())), seconds(p.versions.lasts())
	return s
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
