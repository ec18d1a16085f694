package pace_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/collector/pace"
)

// D is the mean of all groups, even while only short ones have arrived. The mean of the arrived
// groups is too low.
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
		begins(t, p, id)
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
		d, _ := p.Means()
		got := d.Seconds()
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

// The counts add up and at most MaxAhead groups are ahead, for any order of calls.
func TestCountsAddUp(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			k := 1 + rng.IntN(6)
			p := pace.New(pace.Config{MaxAhead: k, MaxLag: rng.IntN(3), UntilGroups: 30})
			check := func(when string) pace.Stats {
				s := p.Stats()
				if progress := s.Begun - s.Whole(); progress < 0 || s.Ahead < progress || s.Ahead > k {
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
					p.Cancel(id)
					check("back")
					continue
				}
				give <- id
			}
			close(give)
			synctest.Wait()
			time.Sleep(time.Hour)
			if s := check("end"); s.Informative < 30 || s.Begun != s.Whole() {
				t.Errorf("end %+v", s)
			}
		})
	}
}

// Groups that were whole or begun before the process began do not count for the duration of a
// group.
func TestWholeEarlier(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pace.New(pace.Config{MaxLag: 1})
		for i := range 1000 {
			p.Whole(fmt.Sprint("earlier", i), pace.Given, 1)
		}
		for i := range 100 {
			p.Resumed(fmt.Sprint("begun", i))
		}
		time.Sleep(time.Second)
		for i := range 100 {
			p.Whole(fmt.Sprint("begun", i), pace.Given, 1)
		}
		for i := range 3 {
			id := fmt.Sprint("now", i)
			begins(t, p, id)
			time.Sleep(10 * time.Second)
			p.Whole(id, pace.Given, 1)
		}
		if got, _ := p.Means(); got < 9*time.Second || got > 11*time.Second {
			t.Errorf("a group takes %v, want 10s", got)
		}
	})
}
