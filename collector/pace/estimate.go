package pace

import (
	"slices"
	"time"
)

// A work clock counts seconds and stands still in a pause.
type work struct {
	at     time.Time
	lived  float64
	paused bool
}

// lived returns the seconds since New without those of pauses.
func (p *Pacer) lived() float64 {
	now := p.cfg.Now()
	if d := now.Sub(p.work.at).Seconds(); d > 0 {
		if !p.work.paused {
			p.work.lived += d
		}
		p.work.at = now
	}
	return p.work.lived
}

// versions knows how long a version lasts, and how many groups a trainer takes in it.
type versions struct {
	now   int32   // the present version, or -1
	since float64 // when it was set
	taken int     // groups acknowledged since then
	extra int     // how many versions more a group may be behind until the next is set
	sum   float64 // the time of the versions before it
	n     float64 // how many they were; both weigh old ones less

	batches [versionsKept]float64 // groups taken per version, of the last times that one was set
	next    int
}

// versionsKept is over how many versions B is the most and T about a mean: a trainer whose
// steps become longer is followed, and one evaluation in between does not count for much.
const versionsKept = 8

// set takes the version, and reports whether it is a new one.
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

// lasts returns T in seconds; 0 if it is not known.
func (v *versions) lasts() float64 {
	if v.n == 0 {
		return 0
	}
	return v.sum / v.n
}

// batch returns B; 0 if it is not known.
func (v *versions) batch() float64 { return slices.Max(v.batches[:]) }

// exposure knows how long a group takes.
type exposure struct {
	at     float64
	open   int     // groups in progress
	busy   float64 // for how long any was
	time   float64 // that all were in progress
	events float64 // how many arrived; time and events weigh old ones less
}

// groupsKept is the least W of the package comment.
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

// end takes a group that is whole. One that did not arrive is forgotten.
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

// takes returns D in seconds.
func (x *exposure) takes(now float64) float64 {
	x.advance(now)
	if x.events == 0 || x.time/x.events > x.busy {
		return x.busy
	}
	return x.time / x.events
}
