package pace_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/collector/pace"
)

// begins asks for the group and reports after how long it may begin.
func begins(t *testing.T, p *pace.Pacer, id string) time.Duration {
	t.Helper()
	start := time.Now()
	if _, ok, err := p.Group(t.Context(), id); !ok || err != nil {
		t.Fatalf("Group = %v, %v", ok, err)
	}
	return time.Since(start)
}

// held fails the test unless the group is held, for this reason.
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
		p.Began("earlier")
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
			p.Back("c")
			p.Whole("d", pace.Given, -1) // it was whole in an earlier process
			time.Sleep(time.Minute)
			p.Acknowledged("d")
		}()
		begins(t, p, "e")
		if took := begins(t, p, "f"); took != 2*time.Minute {
			t.Errorf("held for %v, want 2m: until d, which took the place of c, is acknowledged", took)
		}
		s := p.Stats()
		if s.Begun != 6 || s.InProgress != 2 || s.Informative != 2 || s.Filtered != 1 || s.Failed != 1 || s.Ahead != 2 || s.Given != 0 || s.Whole() != 4 {
			t.Errorf("stats %+v", s)
		}
	})
}

// clocked returns a pacer whose groups take d and whose versions last every, at the moment
// when version 3 is set. In each version the trainer took batch groups.
func clocked(cfg pace.Config, batch int, d, every time.Duration) *pace.Pacer {
	p := pace.New(cfg)
	for v := range int32(3) {
		p.SetVersion(v)
		for i := range batch {
			p.Began(fmt.Sprint("past", i))
		}
		time.Sleep(d)
		for i := range batch {
			p.Whole(fmt.Sprint("past", i), pace.Given, -1)
			p.Acknowledged(fmt.Sprint("past", i))
		}
		time.Sleep(every - d)
	}
	p.SetVersion(3)
	return p
}

// As many groups begin in front of each other as the trainer takes in MaxLag + 1 versions,
// whatever it has taken of them, and as many as it takes with each version.
func TestMaxLag(t *testing.T) {
	t.Parallel()
	for _, k := range []int{0, 1, 3} {
		for _, late := range []int{0, 1} { // acknowledged only after the next version
			t.Run(fmt.Sprintf("lag=%d/late=%d", k, late), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					const batch = 4
					p := clocked(pace.Config{MaxLag: k}, batch, 30*time.Second, 100*time.Second)
					var order []string
					n := 0
					begin := func(times int) {
						t.Helper()
						for range times {
							id := fmt.Sprint(n)
							n++
							if took := begins(t, p, id); took != 0 {
								t.Fatalf("group %s was held for %v", id, took)
							}
							order = append(order, id)
						}
						held(t, p, "next", pace.HeldLag)
					}
					begin((k + 1) * batch)
					for v := int32(4); v < 20; v++ {
						for _, id := range order[:batch] {
							p.Whole(id, pace.Given, -1)
						}
						for _, id := range order[:batch-late] {
							p.Acknowledged(id)
						}
						held(t, p, "next", pace.HeldLag)
						time.Sleep(10 * time.Second)
						p.SetVersion(v)
						if late == 0 {
							begin(batch)
						} else {
							begin(batch) // one of them takes the place of the one that is with the trainer
							p.Acknowledged(order[batch-1])
							held(t, p, "next", pace.HeldLag)
						}
						order = order[batch:]
					}
				})
			})
		}
	}
}

// A trainer that waits for more groups than it ever took gets them, when nothing is in
// progress that it may wait for, and its version is overdue.
func TestOverdue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := clocked(pace.Config{MaxLag: 0}, 2, 30*time.Second, 100*time.Second)
		begins(t, p, "a")
		begins(t, p, "b")
		p.Whole("a", pace.Given, -1)
		p.Acknowledged("a")
		time.Sleep(time.Hour)
		held(t, p, "c", pace.HeldLag) // b may be what it waits for
		p.Whole("b", pace.Given, -1)
		p.Acknowledged("b")
		d := p.Stats().GroupTakes
		if took := begins(t, p, "c"); (took - d).Abs() > time.Millisecond {
			t.Errorf("held for %v, want for as long as a group takes, %v", took, d)
		}
		if took := begins(t, p, "d"); took != 0 {
			t.Errorf("held for %v, want that a batch begins", took)
		}
		held(t, p, "e", pace.HeldLag)
		p.SetVersion(4)
		held(t, p, "e", pace.HeldLag) // c and d are what it takes next
		for _, id := range []string{"c", "d"} {
			p.Whole(id, pace.Given, -1)
			p.Acknowledged(id)
		}
		p.SetVersion(5)
		begins(t, p, "e")
		begins(t, p, "f")
		held(t, p, "g", pace.HeldLag)
		p.Whole("e", pace.Given, -1)
		p.Whole("f", pace.Given, -1)
		s := p.Stats()
		if took, want := begins(t, p, "g"), s.VersionLasts+s.GroupTakes; (took - want).Abs() > time.Millisecond {
			t.Errorf("held for %v, want %v: until its version is overdue", took, want)
		}
	})
}

// The most that a trainer took in a version is what it may take, and of groups in progress as
// many as are informative.
func TestBatchesThatDiffer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := clocked(pace.Config{MaxLag: 0}, 3, 30*time.Second, 100*time.Second)
		version := int32(3)
		take := func(n, filtered int) {
			for i := range n + filtered {
				id := fmt.Sprint(version, "-", i)
				if took := begins(t, p, id); took != 0 {
					t.Errorf("version %d: group %d was held for %v", version, i, took)
				}
				if i < n {
					p.Whole(id, pace.Given, -1)
					p.Acknowledged(id)
				} else {
					p.Whole(id, pace.Filtered, -1)
				}
			}
			version++
			p.SetVersion(version)
		}
		take(1, 0)
		take(2, 0)
		take(3, 0)
		take(1, 25) // 16 of 41 in all are informative
		for i := range 3 * 41 / 16 {
			begins(t, p, fmt.Sprint("g", i))
		}
		begins(t, p, "last")
		held(t, p, "h", pace.HeldLag)
	})
}

// leave tells when a group that waits for a worker is to ask again, and what never began
// counts nowhere.
func TestLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := clocked(pace.Config{MaxLag: 0}, 1, 30*time.Second, 100*time.Second)
		leave, ok, err := p.Group(t.Context(), "g")
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		time.Sleep(time.Hour)
		select {
		case <-leave:
			t.Error("told, and nothing has changed")
		default:
		}
		p.SetVersion(4)
		<-leave
		p.Back("g")
		p.Back("g")
		if s := p.Stats(); s.Begun != 3 || s.InProgress != 0 || s.GroupTakes.Round(time.Millisecond) != 30*time.Second {
			t.Errorf("what never began counts: %+v", s)
		}
		begins(t, p, "g")
		if a := p.Whole("g", pace.Given, -1); a.Lag != 0 {
			t.Errorf("it began in the version in which it began at last, and lags %d", a.Lag)
		}
		leave, err = p.Sample(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p.Pause()
		<-leave
	})
}

// Without a clock nothing is held back, however long groups take.
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
				if a := p.Whole(id, pace.Given, -1); a.Stale || a.Lag > 0 {
					t.Errorf("arrival %+v", a)
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
		if s := p.Stats(); s.Version != 3 || s.Lags[0] != 10 || s.VersionLasts != 0 {
			t.Errorf("stats %+v", s)
		}
		time.Sleep(time.Hour)
		p.SetVersion(5) // two versions in six hours
		if s := p.Stats(); s.VersionLasts != 3*time.Hour {
			t.Errorf("a version lasts %v, want 3h", s.VersionLasts)
		}
	})
}

// The lag of a group is told from the version that is proven, else from the one that was set
// when it began.
func TestArrival(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		oldest int32
		want   pace.Arrival
	}{
		"unknown": {-1, pace.Arrival{Lag: 2, Stale: true}},
		"proven":  {5, pace.Arrival{Lag: 1}},
		"newest":  {6, pace.Arrival{}},
		"ahead":   {9, pace.Arrival{}},
		"ancient": {0, pace.Arrival{Lag: 6, Stale: true}},
	}
	p := pace.New(pace.Config{MaxLag: 1})
	p.SetVersion(4)
	for id := range tests {
		p.Began(id)
	}
	p.SetVersion(6)
	for id, tt := range tests {
		for range 2 { // the second time changes nothing
			if got := p.Whole(id, pace.Given, tt.oldest); got != tt.want {
				t.Errorf("%s: %+v, want %+v", id, got, tt.want)
			}
		}
	}
	if s := p.Stats(); s.Lags[0] != 2 || s.Lags[1] != 1 || s.Lags[2] != 1 || s.Lags[6] != 1 || s.Begun != 5 || s.Informative != 5 {
		t.Errorf("stats %+v", s)
	}
	p.SetVersion(100)
	p.Whole("old", pace.Filtered, 1)
	p.Whole("failed", pace.Failed, 1)
	if s := p.Stats(); s.Lags[pace.LagMost] != 1 {
		t.Errorf("lags %v", s.Lags)
	}
}

// In a pause nothing begins, and the time of the pause is in no mean.
func TestPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := clocked(pace.Config{MaxLag: 0}, 1, 30*time.Second, 100*time.Second)
		begins(t, p, "g")
		time.Sleep(10 * time.Second)
		p.Pause()
		held(t, p, "h", pace.HeldPaused)
		go func() {
			time.Sleep(time.Hour)
			p.Resume()
		}()
		start := time.Now()
		if _, err := p.Sample(t.Context()); err != nil || time.Since(start) != time.Hour {
			t.Errorf("Sample = %v after %v", err, time.Since(start))
		}
		time.Sleep(20 * time.Second)
		p.Whole("g", pace.Filtered, -1)
		time.Sleep(70 * time.Second)
		p.SetVersion(4)
		if s := p.Stats(); s.GroupTakes.Round(time.Millisecond) != 30*time.Second || s.VersionLasts.Round(time.Millisecond) != 100*time.Second {
			t.Errorf("D %v, T %v", s.GroupTakes, s.VersionLasts)
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
		held(t, p, "d", pace.HeldDecided)
		p.Whole("a", pace.Filtered, -1)
		p.Whole("b", pace.Filtered, -1) // 1 of 3, the prior counted
		for _, id := range []string{"d", "e", "f", "g", "h", "i", "j", "k"} {
			begins(t, p, id)
		}
		held(t, p, "l", pace.HeldDecided) // 9 in progress
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
		p.Whole("g", pace.Given, -1) // one too many is given as well
		p.Resume()
		if _, err := p.Sample(t.Context()); err != nil {
			t.Error(err)
		}
		if s := p.Stats(); !s.Enough || s.Informative != 4 || s.Begun != 11 || s.InProgress != 5 || s.Ahead != 8 {
			t.Errorf("stats %+v", s)
		}
	})
}

// D is the mean of all groups, also while only short ones have arrived. The mean of those
// that have arrived is not.
func TestGroupTakes(t *testing.T) {
	t.Parallel()
	const flight, sigma = 64, 1.2
	mean := math.Exp(sigma * sigma / 2) // of the log-normal with median 1
	rng := rand.New(rand.NewPCG(13, 5))
	takes := func() float64 { return math.Exp(sigma * rng.NormFloat64()) }
	at := time.Unix(0, 0)
	p := pace.New(pace.Config{MaxLag: -1, Now: func() time.Time { return at }})
	ends := map[string]float64{}
	now, n, naive, arrived := 0.0, 0, 0.0, 0
	begin := func() {
		id := fmt.Sprint(n)
		n++
		p.Began(id)
		ends[id] = now + takes()
	}
	for range flight {
		begin()
	}
	began := map[string]float64{}
	var off, early float64
	steps := 0
	for range 4000 {
		next := ""
		for id, end := range ends {
			if next == "" || end < ends[next] {
				next = id
			}
		}
		naive, arrived = naive+ends[next]-began[next], arrived+1
		now = ends[next]
		delete(ends, next)
		at = time.Unix(0, int64(now*1e9))
		p.Whole(next, pace.Filtered, -1)
		got := p.Stats().GroupTakes.Seconds()
		if got > now+1e-6 {
			t.Fatalf("D is %v after %v", got, now)
		}
		if arrived == 4*flight {
			early = naive / float64(arrived) / mean
			if math.Abs(got/mean-1) > 0.2 {
				t.Errorf("D is %.2f of the mean after %d groups", got/mean, arrived)
			}
		}
		if arrived > 1000 {
			off += got / mean
			steps++
		}
		id := fmt.Sprint(n)
		begin()
		began[id] = now
	}
	if off /= float64(steps); math.Abs(off-1) > 0.05 {
		t.Errorf("D is %.3f of the mean", off)
	}
	if early > 0.6 {
		t.Errorf("the mean of what arrived first is %.2f of the mean: the test shows nothing", early)
	}
	t.Logf("D %.3f of the mean in the long run; the mean of what arrived first %.2f of it", off, early)
}

// However the calls come, the counts add up and never more than MaxAhead groups are ahead.
func TestCountsAddUp(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			k := 1 + rng.IntN(6)
			p := pace.New(pace.Config{MaxAhead: k, MaxLag: rng.IntN(3), UntilGroups: 30})
			check := func(when string) pace.Stats {
				s := p.Stats()
				if s.Begun != s.InProgress+s.Informative+s.Filtered+s.Failed || s.Ahead != s.InProgress+s.Given || s.Ahead > k || s.InProgress < 0 || s.Given < 0 {
					t.Fatalf("seed %d, %s: %+v", seed, when, s)
				}
				return s
			}
			trainer, reader := rand.New(rand.NewPCG(seed, 2)), rand.New(rand.NewPCG(seed, 3))
			give, acks := make(chan string, 99), make(chan string, 99)
			go func() { // groups end one after the other
				for id := range give {
					time.Sleep(time.Duration(trainer.IntN(1000)) * time.Millisecond)
					o := pace.Outcome(trainer.IntN(3))
					p.Whole(id, o, -1)
					check("whole")
					if o == pace.Given {
						acks <- id
					}
				}
				close(acks)
			}()
			go func() {
				v := int32(0)
				for id := range acks {
					time.Sleep(time.Duration(reader.IntN(1000)) * time.Millisecond)
					p.Acknowledged(id)
					v++
					p.SetVersion(v)
					check("acknowledged")
				}
			}()
			for i := 0; ; i++ {
				id := fmt.Sprint(i)
				_, ok, err := p.Group(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					break
				}
				check("begun")
				if rng.IntN(5) == 0 {
					p.Back(id)
					check("back")
					continue
				}
				give <- id
			}
			close(give)
			synctest.Wait()
			time.Sleep(time.Hour)
			if s := check("end"); s.Informative < 30 || s.InProgress != 0 {
				t.Errorf("end %+v", s)
			}
		})
	}
}

// Groups that were whole before the process began tell nothing of how long a group takes.
func TestWholeEarlier(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pace.New(pace.Config{MaxLag: 1})
		for i := range 1000 {
			p.Whole(fmt.Sprint("earlier", i), pace.Given, 1)
		}
		for i := range 3 {
			id := fmt.Sprint("now", i)
			begins(t, p, id)
			time.Sleep(10 * time.Second)
			p.Whole(id, pace.Given, 1)
		}
		if got := p.Stats().GroupTakes; got < 9*time.Second || got > 11*time.Second {
			t.Errorf("a group takes %v, want 10s", got)
		}
	})
}
