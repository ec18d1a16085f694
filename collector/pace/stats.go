package pace

import "time"

// LagMost is the index of the last bucket in Stats.Lags.
const LagMost = 32

// Stats is a snapshot of a Pacer. It includes groups from earlier processes.
type Stats struct {
	// Version is the current version, or -1 if none was set.
	Version int32
	// Paused is true while the Pacer is paused. Held is the reason why the next group must wait. It
	// is NotHeld if the next group only waits for a worker, or if there is no next group.
	Paused bool
	Held   Hold

	// Begun is the number of groups in progress plus Informative, Filtered and Failed.
	Begun, Informative, Filtered, Failed int
	// Ahead counts the groups in progress and the groups that were given to the trainer but have
	// not yet been acknowledged.
	Ahead int
	// Until is Config.UntilGroups. Enough is true if Informative has reached Until.
	Until  int
	Enough bool

	// Lags is a histogram, by lag, of the groups that became whole and did not fail. The last
	// bucket includes all higher lags. Groups with an unknown lag are not counted.
	Lags [LagMost + 1]int
}

// Whole returns the number of groups that are whole.
func (s *Stats) Whole() int { return s.Informative + s.Filtered + s.Failed }

// LagCounts returns Lags without the zeros at the end. The result is never nil.
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

// Means returns the mean time that a group takes, and the mean time that a version lasts. They are
// D and T in the package comment. A result is 0 if it is not yet known.
func (p *Pacer) Means() (group, version time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return seconds(p.times.mean(p.elapsed())), seconds(p.versions.mean())
}
