package pace_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/collector/pace"
)

// begins waits until the group begins and returns the wait.
func begins(t *testing.T, p *pace.Pacer, id string) time.Duration {
	t.Helper()
	start := time.Now()
	if _, ok, err := p.Group(t.Context(), id); !ok || err != nil {
		t.Fatalf("Group = %v, %v", ok, err)
	}
	return time.Since(start)
}

// held fails the test unless the group is held for this reason.
func held(t *testing.T, p *pace.Pacer, id string, why pace.Hold) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() {
		_, _, err := p.Group(ctx, id)
		done <- err
	}()
	synctest.Wait()
	if got := p.Stats().Held; got != why {
		t.Errorf("held %q, want %q", got, why)
	}
	end := errors.New("end")
	cancel(end)
	if err := <-done; !errors.Is(err, end) {
		t.Errorf("Group = %v, want the cause of its context", err)
	}
	if got := p.Stats().Held; got != pace.NotHeld {
		t.Errorf("held %q after the end", got)
	}
}

func TestMaxAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pace.New(pace.Config{MaxAhead: 2, MaxLag: -1})
		p.Resumed("earlier")
		begins(t, p, "a")
		held(t, p, "b", pace.HeldAhead)
		p.Whole("a", pace.Given, -1)
		held(t, p, "b", pace.HeldAhead)
		p.Acknowledged("earlier") // it is not given
		p.Acknowledged("other")
		held(t, p, "b", pace.HeldAhead)
		p.Acknowledged("a")
		begins(t, p, "b")
		held(t, p, "c", pace.HeldAhead)
		p.Acknowledged("a") // again
		held(t, p, "c", pace.HeldAhead)
		p.Whole("earlier", pace.Filtered, -1)
		begins(t, p, "c")
		p.Whole("b", pace.Failed, -1)
		go func() {
			time.Sleep(time.Minute)
			p.Cancel("c")
			p.Whole("d", pace.Given, -1) // it was whole in an earlier process
			time.Sleep(time.Minute)
			p.Acknowledged("d")
		}()
		begins(t, p, "e")
		if took := begins(t, p, "f"); took != 2*time.Minute {
			t.Errorf("held for %v, want 2m: until d, which took the place of c, is acknowledged", took)
		}
		s := p.Stats()
		if s.Begun != 6 || s.Informative != 2 || s.Filtered != 1 || s.Failed != 1 || s.Ahead != 2 || s.Whole() != 4 {
			t.Errorf("stats %+v", s)
		}
	})
}

// Without versions nothing is held back, for any duration of groups.
func TestNoClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pace.New(pace.Config{})
		if p.Version() != -1 {
			t.Errorf("version %d", p.Version())
		}
		begin := func(n int) {
			for range n {
				id := fmt.Sprint(rand.Int())
				if took := begins(t, p, id); took != 0 {
					t.Errorf("held for %v", took)
				}
				time.Sleep(time.Hour)
				if lag := p.Whole(id, pace.Given, -1); lag > 0 {
					t.Errorf("lag %d", lag)
				}
			}
		}
		begin(5)
		p.SetVersion(7)
		begin(5)
		p.SetVersion(3) // the trainer went back to a checkpoint
		p.SetVersion(3)
		p.SetVersion(-1)
		begin(5)
		if s := p.Stats(); s.Version != 3 || s.Lags[0] != 10 {
			t.Errorf("stats %+v", s)
		}
		if _, lasts := p.Means(); lasts != 0 {
			t.Errorf("a version lasts %v before there was a second one", lasts)
		}
		time.Sleep(time.Hour)
		p.SetVersion(5) // two versions in six hours
		if _, lasts := p.Means(); lasts != 3*time.Hour {
			t.Errorf("a version lasts %v, want 3h", lasts)
		}
	})
}

// The lag of a group uses the proven version, or otherwise the version when it began.
func TestLagOnArrival(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		oldest int32
		want   int32
	}{
		"unknown": {-1, 2},
		"proven":  {5, 1},
		"newest":  {6, 0},
		"ahead":   {9, 0},
		"ancient": {0, 6},
	}
	p := pace.New(pace.Config{MaxLag: 1})
	p.SetVersion(4)
	for id := range tests {
		begins(t, p, id)
	}
	p.SetVersion(6)
	for id, tt := range tests {
		for range 2 { // the second time changes nothing
			if got := p.Whole(id, pace.Given, tt.oldest); got != tt.want {
				t.Errorf("%s: lag %d, want %d", id, got, tt.want)
			}
		}
	}
	if s := p.Stats(); !slices.Equal(s.LagCounts(), []int{2, 1, 1, 0, 0, 0, 1}) || s.Begun != 5 || s.Informative != 5 {
		t.Errorf("stats %+v", s)
	}
	p.SetVersion(100)
	p.Whole("old", pace.Filtered, 1)
	p.Whole("failed", pace.Failed, 1)
	if s := p.Stats(); s.Lags[pace.LagMost] != 1 {
		t.Errorf("lags %v", s.Lags)
	}
}

// The current version is not used for a group that an earlier process began: its version at the
// start is unknown.
func TestLagOfWhatHadBegun(t *testing.T) {
	t.Parallel()
	p := pace.New(pace.Config{MaxLag: 1})
	if s := p.Stats(); s.LagCounts() == nil {
		t.Error("no list without arrivals")
	}
	p.SetVersion(6)
	p.Resumed("unknown")
	p.Resumed("proven")
	if got := p.Whole("unknown", pace.Given, -1); got != -1 {
		t.Errorf("lag %d, want -1: it is not known", got)
	}
	if got := p.Whole("proven", pace.Given, 4); got != 2 {
		t.Errorf("lag %d, want 2", got)
	}
	p.Resumed("proven") // it is already whole
	if s := p.Stats(); s.Lags[0] != 0 || s.Lags[2] != 1 || s.Begun != 2 || s.Whole() != 2 {
		t.Errorf("stats %+v", s)
	}
}

// Nothing begins during a pause or while too much is unread, and this time is in no mean.
func TestPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := clocked(t, pace.Config{MaxLag: 0}, 1, 30*time.Second, 100*time.Second)
		begins(t, p, "g")
		time.Sleep(10 * time.Second)
		p.HoldUnread(true)
		held(t, p, "h", pace.HeldUnread)
		p.Pause()
		held(t, p, "h", pace.HeldPaused)
		p.HoldUnread(false)
		p.HoldUnread(true)
		if s := p.Stats(); !s.Paused {
			t.Error("the pause has ended")
		}
		go func() {
			time.Sleep(30 * time.Minute)
			p.Resume()
			if s := p.Stats(); s.Paused {
				t.Error("the pause has not ended")
			}
			time.Sleep(30 * time.Minute)
			p.HoldUnread(false)
		}()
		start := time.Now()
		if _, err := p.Sample(t.Context()); err != nil || time.Since(start) != time.Hour {
			t.Errorf("Sample = %v after %v", err, time.Since(start))
		}
		time.Sleep(20 * time.Second)
		p.Whole("g", pace.Filtered, -1)
		time.Sleep(70 * time.Second)
		p.SetVersion(4)
		if takes, lasts := p.Means(); takes.Round(time.Millisecond) != 30*time.Second || lasts.Round(time.Millisecond) != 100*time.Second {
			t.Errorf("D %v, T %v", takes, lasts)
		}
	})
}

func TestUntilGroups(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pace.New(pace.Config{UntilGroups: 3, MaxLag: -1})
		for _, id := range []string{"a", "b", "c"} {
			begins(t, p, id)
		}
		held(t, p, "d", pace.HeldUndecided)
		p.Whole("a", pace.Filtered, -1)
		p.Whole("b", pace.Filtered, -1) // 1 of 3, including the prior
		for _, id := range []string{"d", "e", "f", "g", "h", "i", "j", "k"} {
			begins(t, p, id)
		}
		held(t, p, "l", pace.HeldUndecided) // 9 in progress
		p.Whole("d", pace.Given, -1)
		p.Whole("e", pace.Given, -1)
		p.Pause()
		held(t, p, "l", pace.HeldPaused)
		select {
		case <-p.Enough():
			t.Error("enough with 2 of 3")
		default:
		}
		p.Acknowledged("d")
		go func() {
			time.Sleep(time.Second)
			p.Whole("f", pace.Given, -1)
		}()
		if _, ok, err := p.Group(t.Context(), "l"); ok || err != nil {
			t.Errorf("Group = %v, %v, want that none is needed", ok, err)
		}
		<-p.Enough()
		p.Whole("g", pace.Given, -1) // one too many is given too
		p.Resume()
		if _, err := p.Sample(t.Context()); err != nil {
			t.Error(err)
		}
		if s := p.Stats(); !s.Enough || s.Informative != 4 || s.Begun != 11 || s.Whole() != 6 || s.Ahead != 8 {
			t.Errorf("stats %+v", s)
		}
	})
}
