package limit_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/limit"
)

func TestGrowthNeedsCleanRoundsThatBind(t *testing.T) {
	t.Parallel()
	c := at(limit.Config{Max: 512})
	for range 10 {
		c.finish(16, 5*time.Second)
		none(t, "one error", c.Faulted(c.at, "a", 32, true))
		for _, ch := range c.finish(16, 5*time.Second) {
			none(t, "a round with an error", ch)
		}
	}
	for _, in := range []int{0, 1, 16, 28} { // 0.9 of 32 is 28.8
		for _, ch := range c.finishWith(320, 100*time.Second, in) {
			none(t, fmt.Sprintf("%d in flight", in), ch)
		}
	}
	if ch := c.finishWith(64, 20*time.Second, 29); len(ch) != 1 || ch[0].To != 64 {
		t.Errorf("29 in flight: %v, want 64", ch)
	}
}

func TestEngineBarsGrowth(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		seen  limit.Engine
		age   time.Duration
		grows bool
	}{
		{"room", engine(0.6, 3, 0), 0, true},
		{"KV cache in use", engine(0.61, 0, 0), 0, false},
		{"requests wait", engine(0.1, 4, 0), 0, false},
		{"nothing is known of it", engine(-1, -1, -1), 0, true},
		{"room, 15 s ago", engine(0.1, 0, 0), 15 * time.Second, true},
		{"room, but longer ago", engine(0.1, 0, 0), 16 * time.Second, false},
		{"gone for 5 minutes", engine(0.1, 0, 0), 5 * time.Minute, false},
		{"gone for longer", engine(0.7, 0, 0), 5*time.Minute + time.Second, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := at(limit.Config{Max: 512})
			c.finish(31, 31*time.Second)
			none(t, "poll", c.Polled(c.at, tt.seen))
			c.sleep(tt.age)
			if grew := c.Done(c.at, 32).Made(); grew != tt.grows {
				t.Errorf("grew %v, want %v", grew, tt.grows)
			}
		})
	}
}

// A growth opens by a tenth of the limit per step, or by a group.
func TestGrowthOpensInSteps(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		group int
		want  []int
	}{
		{1, []int{39, 46, 53, 60, 64, 64}},
		{16, []int{48, 64, 64}},
	} {
		c := at(limit.Config{Max: 512, Group: tt.group})
		want(t, "growth", c.rounds(1), 32, 64, limit.SlowStart)
		var got []int
		for range tt.want {
			n, next := c.Open(c.at)
			got = append(got, n)
			if n < 64 {
				if next != c.at.Add(5*time.Second) {
					t.Errorf("%d open: more in %v, want 5s", n, next.Sub(c.at))
				}
				if n, _ := c.Open(next.Add(-1)); n != got[len(got)-1] {
					t.Errorf("%d open just before", n)
				}
			}
			c.sleep(5 * time.Second)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("group %d: open %v, want %v", tt.group, got, tt.want)
		}
	}
	c := at(limit.Config{Max: 512})
	c.rounds(1)
	c.sleep(time.Hour) // no call of Open
	if n, _ := c.Open(c.at); n != 46 {
		t.Errorf("open %d after an hour without demand, want one more step: 46", n)
	}
	want(t, "cut", c.Refused(c.at, "9", limit.RateLimited), 64, 51, limit.RateLimited)
	if n, _ := c.Open(c.at); n != 46 {
		t.Errorf("open %d after the cut, want the earlier value", n)
	}
}

// A growth without gain is taken back and delayed, longer every time, and so is a growth that ends
// in a cut.
func TestGrowthWithoutGainIsPutOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t, limit.Config{Max: 512}, server{perSecond: flat(5), even: true}, 1)
	w.run(6 * time.Hour)
	var backs []time.Duration
	for i, ch := range w.changes {
		if ch.Reason == limit.NoGain {
			backs = append(backs, w.times[i])
		}
	}
	if len(backs) < 6 || w.c.Limit() > 40 {
		t.Fatalf("limit %d, reduced at %v", w.c.Limit(), backs)
	}
	if first, last := backs[2]-backs[1], backs[5]-backs[4]; last < 2*first {
		t.Errorf("tried again after %v, and later after %v: want ever longer", first, last)
	}
	for name, srv := range map[string]server{
		"429": {perSecond: room(10 * time.Second), refuses: 50, why: limit.RateLimited},
		"500": {perSecond: flat(5), bursts: 29},
	} {
		w := newWorld(t, limit.Config{Max: 512}, srv, 1)
		w.run(2 * time.Hour)
		if cuts := w.reasons()[limit.RateLimited] + w.reasons()[limit.Overload]; cuts > 40 {
			t.Errorf("%s: %d cuts in two hours: %v", name, cuts, w.reasons())
		}
	}
}

// A growth is not compared with an old rate: on a server that became slower it would show no gain.
func TestBaseIsOfThePresent(t *testing.T) {
	t.Parallel()
	each := 2 * time.Second
	srv := server{even: true, perSecond: func(n int) float64 { return float64(n) / each.Seconds() }, kvPer: 1.0 / 40}
	w := newWorld(t, limit.Config{Max: 64}, srv, 1)
	w.run(30 * time.Minute) // the engine is too full to grow
	each *= 3
	w.run(10 * time.Minute)
	if l := w.c.Limit(); l != 32 {
		t.Fatalf("limit %d", l)
	}
	w.srv.kvPer = 1e-9
	w.run(5 * time.Minute)
	if l := w.c.Limit(); l != 64 || len(w.changes) != 1 {
		t.Errorf("limit %d after %v, want 64 at once", l, w.changes)
	}
}

// Rounds on the way back after a cut, and samples started under their limits, do not count for the
// rate of the final limit.
func TestBaseAfterACut(t *testing.T) {
	t.Parallel()
	c := at(limit.Config{Max: 512, Start: 100})
	want(t, "cut", c.Refused(c.at, "11", limit.RateLimited), 100, 80, limit.RateLimited)
	for range 20 { // 5 per second on the way
		if c.Limit() < 99 {
			c.finish(c.Limit(), time.Duration(c.Limit())*200*time.Millisecond)
		}
	}
	if c.Limit() != 99 {
		t.Fatalf("limit %d, want one less than at the cut", c.Limit())
	}
	c.finish(99, 20*time.Second) // begun on the way
	// From here on 20 per second at any limit.
	for range 100 {
		n := max(c.Limit(), 16)
		c.finish(n, time.Duration(n)*50*time.Millisecond)
		if c.Limit() > 130 {
			t.Fatalf("limit %d on a server that is flat", c.Limit())
		}
	}
	if c.Limit() != 99 {
		t.Errorf("limit %d on a server that is flat, want 99", c.Limit())
	}
}

func TestReopen(t *testing.T) {
	t.Parallel()
	c := at(limit.Config{Max: 100, Start: 40})
	c.Reopen(c.at)
	for _, want := range []int{4, 8, 12} {
		if n, next := c.Open(c.at); n != want || next != c.at.Add(5*time.Second) || c.Limit() != 40 {
			t.Errorf("open %d of %d, want %d", n, c.Limit(), want)
		}
		c.sleep(5 * time.Second)
	}
}
