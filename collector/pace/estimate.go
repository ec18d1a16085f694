package pace

import (
	"slices"
	"time"
)

// A work is a clock that measures seconds and stops during pauses.
type work struct {
	at     time.Time
	lived  float64
	paused bool
}

func (p *Pacer) elapsed() float64 {
	now := p.cfg.Now()
	if d := now.Sub(p.work.at).Seconds(); d > 0 {
		if !p.work.paused {
			p.work.lived += d
		}
		p.work.at = now
	}
	return p.work.lived
}

// versions tracks how long a version lasts, and how many groups a trainer takes per version.
type versions struct {
	now   int32 // the current version; -1 if none was set
	since float64
	taken int     // number of groups acknowledged in the current version
	extra int     // until the next version is set, a group can be behind by this many more versions
	sum   float64 // total time of the earlier versions
	n     float64 // number of earlier versions; old versions have less weight in sum and n

	batches [versionsKept]float64 // number of groups taken in each of the last versions
	next    int
}

// versionsKept is the number of versions from which the maximum B is taken. The mean T covers about
// the same number of versions.
const versionsKept = 8

func (v *versions) set(now float64, version int32) bool {
	if version < 0 || version == v.now {
		return false
	}
	if v.now >= 0 && version > v.now {
		n, keep := float64(version-v.now), 1-1.0/versionsKept
		v.sum, v.n = v.sum*keep+now-v.since, v.n*keep+n
		v.batches[v.next] = float64(v.taken) / n
		v.next = (v.next + 1) % versionsKept
	}
	v.now, v.since, v.taken, v.extra = version, now, 0, 0
	return true
}

// mean returns T in seconds, or 0 if T is unknown.
func (v *versions) mean() float64 {
	if v.n == 0 {
		return 0
	}
	return v.sum / v.n
}

// batch returns B, or 0 if B is unknown.
func (v *versions) batch() float64 { return slices.Max(v.batches[:]) }

// exposure tracks how long a group takes.
type exposure struct {
	at     float64
	open   int     // number of groups in progress
	busy   float64 // time with any group in progress
	time   float64 // total time of all groups in progress
	events float64 // number of arrivals; old groups have less weight in time and events
}

// groupsKept is the smallest value of W. See the package comment.
const groupsKept = 128

func (x *exposure) advance(now float64) {
	if d := now - x.at; d > 0 {
		x.time += d * float64(x.open)
		if x.open > 0 {
			x.busy += d
		}
		x.at = now
	}
}

func (x *exposure) begin(now float64) {
	x.advance(now)
	x.open++
}

// The method end records that a group ended. If the group did not arrive, end removes the group
// from the estimate.
func (x *exposure) end(now, began float64, arrived bool) {
	x.advance(now)
	if !arrived {
		x.time = max(0, x.time-(now-began))
		x.open--
		return
	}
	keep := 1 - 1/float64(max(groupsKept, 4*x.open))
	x.open--
	x.time, x.events = x.time*keep, (x.events+1)*keep
}

// mean returns D in seconds.
func (x *exposure) mean(now float64) float64 {
	x.advance(now)
	if x.events == 0 || x.time/x.events > x.busy {
		return x.busy
	}
	return x.time / x.events
}
