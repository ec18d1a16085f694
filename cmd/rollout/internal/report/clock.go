package report

import (
	"fmt"
	"time"
)

// A difference between two log times that is within these limits does not count as a clock jump.
// Lines from different goroutines can be slightly out of order, and status lines are ten seconds
// apart.
const (
	maxDisorder = 2 * time.Second
	maxSilence  = 10 * time.Minute
	maxJumps    = 20 // maximum number of jumps that a report lists
)

// A clock reads the lines of all logs in order and finds jumps of the system clock.
type clock struct {
	log   string
	last  time.Time
	beats bool // true after the first status line of this log
	jumps []ClockJump
}

// passed returns the number of seconds since the invocation's previous line. It returns 0 for a
// jump.
func (c *clock) passed(log string, l *logLine, at time.Time) float64 {
	first := c.log != log
	by := at.Sub(c.last)
	known := !c.last.IsZero()
	back := known && by < -maxDisorder
	ahead := !first && c.beats && by > maxSilence
	c.beats = !first && c.beats || l.Msg == "status"
	c.log, c.last = log, at
	switch {
	case back || ahead:
		if len(c.jumps) < maxJumps {
			c.jumps = append(c.jumps, ClockJump{Log: log, At: at, Seconds: by.Seconds()})
		}
		return 0
	case first || !known:
		return 0
	}
	return max(0, by.Seconds())
}

// clockNotes returns notes that explain which times are unreliable.
func clockNotes(r *Report) (out []string) {
	for _, j := range r.ClockJumps {
		what := fmt.Sprintf("jumped back by %s", seconds(-j.Seconds))
		if j.Seconds > 0 {
			what = fmt.Sprintf("jumped forward by %s, or the machine slept", seconds(j.Seconds))
		}
		out = append(out, fmt.Sprintf("The clock %s (%s, %s). Durations are unaffected; times are unreliable.", what, j.Log, moment(j.At)))
	}
	if t := r.Time; !r.Copied && t.First != nil && t.First.Before(r.CreatedAt.Add(-maxSkew)) {
		out = append(out, fmt.Sprintf("A sample is dated %s, which is before the run was created. The clock has been changed since then, so plots over time are unreliable.", moment(*t.First)))
	}
	if t := r.Time; t.Last != nil && t.Last.After(r.WrittenAt.Add(maxSkew)) {
		out = append(out, fmt.Sprintf("A sample is dated %s, which is after this report was written. The clock has been changed since then, so plots over time are unreliable.", moment(*t.Last)))
	}
	return out
}

// maxSkew is the largest difference between two machines' clocks that a report ignores.
const maxSkew = time.Minute

// If the clock jumped, rate computes the mean rate over the total duration of the invocations.
// After a jump, the time from the first start to the last end could be years.
func (r *Report) rate() {
	var worked float64
	for _, in := range r.Invocations {
		worked += in.Seconds
	}
	s := r.Throughput
	if s == nil || len(r.ClockJumps) == 0 || worked <= 0 {
		return
	}
	s.TokensPerSecond = 0
	for _, n := range s.Tokens {
		s.TokensPerSecond += n / worked
	}
}
