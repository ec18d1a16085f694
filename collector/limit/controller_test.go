package limit_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/limit"
)

// A clock drives a controller with a fake time.
type clock struct {
	*limit.Controller
	at time.Time
}

func at(cfg limit.Config) *clock {
	return &clock{limit.New(cfg), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
}

func (c *clock) sleep(d time.Duration) { c.at = c.at.Add(d) }

// finish finishes n samples in d, with the limit in use, and returns the changes.
func (c *clock) finish(n int, d time.Duration) []limit.Change { return c.finishWith(n, d, -1) }

func (c *clock) finishWith(n int, d time.Duration, inFlight int) []limit.Change {
	var all []limit.Change
	for range n {
		c.sleep(d / time.Duration(n))
		in := inFlight
		if in < 0 {
			in = c.Limit()
		}
		if ch := c.Done(c.at, in); ch.Made() {
			all = append(all, ch)
		}
	}
	return all
}

// rounds runs up to most rounds with throughput proportional to the limit, until the limit changes.
func (c *clock) rounds(most int) limit.Change {
	for range most {
		n := max(c.Limit(), 16)
		for range n {
			c.sleep(10 * time.Second / time.Duration(c.Limit()))
			if ch := c.Done(c.at, c.Limit()); ch.Made() {
				return ch
			}
		}
	}
	return limit.Change{}
}

func want(t *testing.T, what string, got limit.Change, from, to int, why limit.Reason) {
	t.Helper()
	if (got != limit.Change{From: from, To: to, Reason: why}) {
		t.Errorf("%s: %d → %d (%v), want %d → %d (%v)", what, got.From, got.To, got.Reason, from, to, why)
	}
}

func none(t *testing.T, what string, got limit.Change) {
	t.Helper()
	if got.Made() {
		t.Errorf("%s: %d → %d (%v), want no change", what, got.From, got.To, got.Reason)
	}
}

func TestStart(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		cfg  limit.Config
		want int
	}{
		{limit.Config{Max: 512}, 32},
		{limit.Config{Max: 24}, 24},
		{limit.Config{Max: 1}, 1},
		{limit.Config{}, 1},
		{limit.Config{Max: 512, Start: 100}, 100},
		{limit.Config{Max: 50, Start: 100}, 50},
	} {
		c := at(tt.cfg)
		open, next := c.Open(c.at)
		if c.Limit() != tt.want || open != tt.want || !next.IsZero() {
			t.Errorf("%+v: limit %d, open %d until %v, want %d at once", tt.cfg, c.Limit(), open, next, tt.want)
		}
	}
}

func TestSlowStartDoubles(t *testing.T) {
	t.Parallel()
	c := at(limit.Config{Max: 200})
	want(t, "a clean round", c.rounds(1), 32, 64, limit.SlowStart)
	want(t, "then", c.rounds(10), 64, 128, limit.SlowStart)
	want(t, "up to the most", c.rounds(10), 128, 200, limit.SlowStart)
	none(t, "at the most", c.rounds(20))
}

func TestAfterACutItGrowsByAFewPercent(t *testing.T) {
	t.Parallel()
	c := at(limit.Config{Max: 512, Start: 100})
	want(t, "429", c.Refused(c.at, "1", limit.RateLimited), 100, 80, limit.RateLimited)
	want(t, "clean rounds", c.rounds(2), 80, 84, limit.Growth)
	want(t, "and one", c.rounds(2), 84, 88, limit.Growth)

	c = at(limit.Config{Max: 512, Start: 10})
	want(t, "503", c.Refused(c.at, "2", limit.Unavailable), 10, 8, limit.Unavailable)
	want(t, "at least one more", c.rounds(4), 8, 9, limit.Growth)
}

func TestCutsAreApart(t *testing.T) {
	t.Parallel()
	c := at(limit.Config{Max: 100, Start: 100})
	want(t, "first", c.Refused(c.at, "3", limit.Connection), 100, 80, limit.Connection)
	for range 7 {
		c.sleep(2 * time.Second)
		none(t, "within 15 s", c.Refused(c.at, "4", limit.RateLimited))
	}
	c.sleep(time.Second)
	want(t, "after 15 s", c.Refused(c.at, "5", limit.RateLimited), 80, 64, limit.RateLimited)

	c = at(limit.Config{Max: 3})
	for _, to := range []int{2, 1} {
		want(t, "small", c.Refused(c.at, "6", limit.RateLimited), to+1, to, limit.RateLimited)
		c.sleep(15 * time.Second)
	}
	none(t, "never below one", c.Refused(c.at, "7", limit.RateLimited))
}

// Refusals every 2 s for ten minutes lower the limit to its floor, and it grows as soon as they
// end. The interface has no input for Retry-After.
func TestRefusalsLowerLimitToOne(t *testing.T) {
	t.Parallel()
	c := at(limit.Config{Max: 256})
	cuts := 0
	for i := range 300 {
		c.sleep(2 * time.Second)
		if c.Refused(c.at, fmt.Sprint(i), limit.RateLimited).Made() {
			cuts++
		}
		none(t, "growth in the storm", c.Done(c.at, c.Limit()))
	}
	if c.Limit() != 1 || cuts < 10 || cuts > 40 {
		t.Errorf("limit %d after %d cuts, want 1", c.Limit(), cuts)
	}
	over := c.at
	for c.Limit() < 30 {
		if !c.rounds(4).Made() {
			t.Fatalf("frozen at %d", c.Limit())
		}
	}
	if took := c.at.Sub(over); took > 10*time.Minute {
		t.Errorf("back at 30 after %v", took)
	}
}

func TestOneFailureInAHundredIsClean(t *testing.T) {
	t.Parallel()
	for faults, clean := range map[int]bool{2: true, 3: false} {
		c := at(limit.Config{Max: 1000, Start: 200})
		c.finish(100, 5*time.Second)
		for range faults {
			c.Faulted(c.at, "a", 200, false)
		}
		if got := len(c.finish(100, 5*time.Second)) == 1; got != clean {
			t.Errorf("%d failures in 200: grew %v, want %v", faults, got, clean)
		}
	}
}

func TestRoundsLastASecond(t *testing.T) {
	t.Parallel()
	c := at(limit.Config{Max: 512})
	if ch := c.finish(90, 900*time.Millisecond); len(ch) != 0 {
		t.Errorf("in 900ms: %v, want nothing", ch)
	}
	if ch := c.finish(20, 200*time.Millisecond); len(ch) != 1 {
		t.Errorf("in 1.1s: %v, want one", ch)
	}
}

func TestBurstOfServerErrors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		keys     []string
		inFlight int
		apart    time.Duration
		server   bool
		cut      bool
	}{
		{"three samples at once", []string{"a", "b", "c"}, 32, 0, true, true},
		{"two", []string{"a", "b"}, 32, 0, true, false},
		{"one, over and over", []string{"a", "a", "a", "a", "a"}, 32, 0, true, false},
		{"the limit is not in use", []string{"a", "b", "c", "d"}, 20, 0, true, false},
		{"over a long time", []string{"a", "b", "c", "d", "e"}, 32, 3 * time.Second, true, false},
		{"timeouts", []string{"a", "b", "c", "d"}, 32, 0, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := at(limit.Config{Max: 512})
			var got limit.Change
			for _, key := range tt.keys {
				if ch := c.Faulted(c.at, key, tt.inFlight, tt.server); ch.Made() {
					got = ch
				}
				c.sleep(tt.apart)
			}
			if tt.cut {
				want(t, "burst", got, 32, 25, limit.Overload)
			} else {
				none(t, "no burst", got)
			}
		})
	}
	c := at(limit.Config{Max: 512, Start: 100})
	for i := range 9 {
		none(t, "less than a tenth", c.Faulted(c.at, fmt.Sprint(i), 100, true))
	}
	want(t, "a tenth", c.Faulted(c.at, "9", 100, true), 100, 80, limit.Overload)
}

// Lost connections of one sample never cut the limit, and several samples that lose theirs at once
// do.
func TestLostConnections(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		keys  []string
		apart time.Duration
		ended int // samples that finish between two losses
		to    int
	}{
		{"one", []string{"a"}, 0, 0, 100},
		{"two at once", []string{"a", "b"}, 0, 0, 80},
		{"two within 15 s", []string{"a", "b"}, 14 * time.Second, 0, 80},
		{"minutes apart", []string{"a", "b", "c", "d", "e", "f", "g", "h"}, 30 * time.Second, 0, 100},
		{"of one sample, over and over", []string{"a", "a", "a", "a"}, time.Second, 0, 100},
		{"few of many", []string{"a", "b", "c", "d", "e", "f"}, 5 * time.Second, 100, 100},
		{"many of many", []string{"a", "b", "c", "d"}, 5 * time.Second, 10, 80},
		{"none for two cuts", []string{"a", "b", "c"}, 8 * time.Second, 0, 80},
		{"on and on", []string{"a", "b", "c", "d"}, 8 * time.Second, 0, 64},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := at(limit.Config{Max: 512, Start: 100})
			for _, key := range tt.keys {
				if ch := c.Lost(c.at, key); ch.Made() && ch.Reason != limit.Connection {
					t.Errorf("cut for %v", ch.Reason)
				}
				if tt.ended == 0 {
					c.sleep(tt.apart)
					continue
				}
				for range tt.ended { // below the limit: nothing grows
					c.sleep(tt.apart / time.Duration(tt.ended))
					c.Done(c.at, 1)
				}
			}
			if c.Limit() != tt.to {
				t.Errorf("limit %d, want %d", c.Limit(), tt.to)
			}
		})
	}
}

func engine(kv, waiting, preempted float64) limit.Engine {
	return limit.Engine{KVUsage: kv, Waiting: waiting, Preemptions: preempted}
}

func TestEngineCuts(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		seen []limit.Engine
		to   int
		why  limit.Reason
	}{
		{"room", []limit.Engine{engine(0.5, 0, 0)}, 100, limit.None},
		{"full enough to stop growing", []limit.Engine{engine(0.8, 50, 0)}, 100, limit.None},
		{"high", []limit.Engine{engine(0.81, 0, 0)}, 95, limit.KVHigh},
		{"full", []limit.Engine{engine(0.91, 0, 0)}, 80, limit.KVFull},
		{"preempted before we came", []limit.Engine{engine(0.5, 0, 70)}, 100, limit.None},
		{"preempted", []limit.Engine{engine(0.5, 0, 70), engine(0.5, 0, 71)}, 80, limit.Preemption},
		{"restarted", []limit.Engine{engine(0.5, 0, 70), engine(0.5, 0, 2)}, 100, limit.None},
		{"restarted, preempted", []limit.Engine{engine(0.5, 0, 70), engine(0.5, 0, 2), engine(0.5, 0, 3)}, 80, limit.Preemption},
		{"unknown", []limit.Engine{engine(-1, -1, -1), engine(-1, -1, 5)}, 100, limit.None},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := at(limit.Config{Max: 512, Start: 100})
			var got limit.Change
			for _, e := range tt.seen {
				got = c.Polled(c.at, e)
				c.sleep(5 * time.Second)
			}
			if c.Limit() != tt.to || got.Reason != tt.why {
				t.Errorf("limit %d for %v, want %d for %v", c.Limit(), got.Reason, tt.to, tt.why)
			}
		})
	}
}

// For any order of events the limit stays within its bounds, cuts are apart, and every change has a
// reason.
func TestControllerInvariants(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		most := 1 + rnd.IntN(300)
		c := at(limit.Config{Max: most, Start: rnd.IntN(400), Group: rnd.IntN(20)})
		var lastCut time.Time
		for range 5000 {
			c.sleep(time.Duration(rnd.IntN(2000)) * time.Millisecond)
			before := c.Limit()
			var ch limit.Change
			switch p := rnd.IntN(1000); {
			case p < 970:
				ch = c.Done(c.at, rnd.IntN(2*before+1))
			case p < 975:
				ch = c.Refused(c.at, fmt.Sprint(rnd.IntN(20)), limit.Unavailable)
			case p < 985:
				ch = c.Faulted(c.at, fmt.Sprint(rnd.IntN(20)), rnd.IntN(before+1), rnd.IntN(2) == 0)
			default:
				ch = c.Polled(c.at, engine(rnd.Float64(), float64(rnd.IntN(3)), -1))
			}
			l := c.Limit()
			open, _ := c.Open(c.at)
			if l < 1 || l > most || open < 1 || open > l {
				t.Fatalf("seed %d: limit %d of %d, open %d", seed, l, most, open)
			}
			if ch.Made() != (l != before) || ch.Made() && (ch.From != before || ch.To != l || ch.Reason == limit.None) {
				t.Fatalf("seed %d: %+v, and the limit went from %d to %d", seed, ch, before, l)
			}
			up := ch.Reason == limit.SlowStart || ch.Reason == limit.Growth
			if ch.Made() && up != (ch.To > ch.From) {
				t.Fatalf("seed %d: %d → %d for %v", seed, ch.From, ch.To, ch.Reason)
			}
			if ch.Made() && !up && ch.Reason != limit.NoGain {
				if !lastCut.IsZero() && c.at.Sub(lastCut) < 15*time.Second {
					t.Fatalf("seed %d: cuts %v apart", seed, c.at.Sub(lastCut))
				}
				if least := min(int(0.8*float64(ch.From)), ch.From-1); ch.To < max(least, 1) {
					t.Fatalf("seed %d: cut from %d to %d", seed, ch.From, ch.To)
				}
				lastCut = c.at
			}
		}
	}
}

func TestReasonNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{limit.None.String(): true}
	for _, r := range limit.Reasons() {
		if name := r.String(); seen[name] || name == "" {
			t.Errorf("reason %d is called %q", r, name)
		}
		seen[r.String()] = true
	}
	if len(seen) != 11 {
		t.Errorf("%d reasons, want 10 and none", len(seen)-1)
	}
}

// A sample that the server refuses at any limit, while others finish, costs only one cut. If no
// sample finishes meanwhile, each refusal counts.
func TestOneSampleThatIsTurnedAway(t *testing.T) {
	t.Parallel()
	for _, why := range []limit.Reason{limit.RateLimited, limit.Unavailable} {
		c := at(limit.Config{Max: 16})
		want(t, "first", c.Refused(c.at, "bad", why), 16, 12, why)
		for range 24 {
			c.sleep(20 * time.Second)
			c.Done(c.at, c.Limit())
			none(t, "again", c.Refused(c.at, "bad", why))
		}
		c.sleep(20 * time.Second)
		want(t, "another", c.Refused(c.at, "other", why), 12, 9, why)
		c.sleep(20 * time.Second)
		want(t, "nothing was finished", c.Refused(c.at, "bad", why), 9, 7, why)
	}
}
