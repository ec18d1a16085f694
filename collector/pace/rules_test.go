package pace_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/collector/pace"
)

// clocked returns a pacer whose groups take d and whose versions last every, at the moment of
// version 3. The trainer took batch groups in each version.
func clocked(t *testing.T, cfg pace.Config, batch int, d, every time.Duration) *pace.Pacer {
	t.Helper()
	p := pace.New(cfg)
	for v := range int32(3) {
		p.SetVersion(v)
		for i := range batch {
			begins(t, p, fmt.Sprint("past", i))
		}
		time.Sleep(d)
		for i := range batch {
			taken(p, fmt.Sprint("past", i))
		}
		time.Sleep(every - d)
	}
	p.SetVersion(3)
	return p
}

// taken gives a group to the trainer.
func taken(p *pace.Pacer, id string) {
	p.Whole(id, pace.Given, -1)
	p.Acknowledged(id)
}

// The trainer's groups of MaxLag + 1 versions can be in front of a new group, and each version
// admits one more batch.
func TestMaxLag(t *testing.T) {
	t.Parallel()
	for _, k := range []int{0, 1, 3} {
		for _, late := range []int{0, 1} { // number of groups acknowledged only after the next version
			t.Run(fmt.Sprintf("lag=%d/late=%d", k, late), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					const batch = 4
					p := clocked(t, pace.Config{MaxLag: k}, batch, 30*time.Second, 100*time.Second)
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
						begin(batch) // if one is late, the group at the trainer counts as one of them
						if late > 0 {
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

// A trainer that waits for more groups than it ever took gets them, when no group is in progress
// and its version is overdue.
func TestOverdue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := clocked(t, pace.Config{MaxLag: 0}, 2, 30*time.Second, 100*time.Second)
		begins(t, p, "a")
		begins(t, p, "b")
		taken(p, "a")
		time.Sleep(time.Hour)
		held(t, p, "c", pace.HeldLag) // b can be what it waits for
		taken(p, "b")
		d, _ := p.Means()
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
			taken(p, id)
		}
		p.SetVersion(5)
		begins(t, p, "e")
		begins(t, p, "f")
		held(t, p, "g", pace.HeldLag)
		p.Whole("e", pace.Given, -1)
		p.Whole("f", pace.Given, -1)
		takes, lasts := p.Means()
		if took, want := begins(t, p, "g"), lasts+takes; (took - want).Abs() > time.Millisecond {
			t.Errorf("held for %v, want %v: until its version is overdue", took, want)
		}
	})
}

// The largest batch counts, and groups in progress count by the share of informative groups.
func TestBatchesThatDiffer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := clocked(t, pace.Config{MaxLag: 0}, 3, 30*time.Second, 100*time.Second)
		version := int32(3)
		take := func(n, filtered int) {
			for i := range n + filtered {
				id := fmt.Sprint(version, "-", i)
				if took := begins(t, p, id); took != 0 {
					t.Errorf("version %d: group %d was held for %v", version, i, took)
				}
				if i < n {
					taken(p, id)
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

// Leave is closed when a group that waits for a worker must ask again, and a group that never began
// is not counted.
func TestLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := clocked(t, pace.Config{MaxLag: 0}, 1, 30*time.Second, 100*time.Second)
		leave, ok, err := p.Group(t.Context(), "g")
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		time.Sleep(time.Hour)
		select {
		case <-leave:
			t.Error("notified without a change")
		default:
		}
		p.SetVersion(4)
		<-leave
		p.Cancel("g")
		p.Cancel("g")
		takes, _ := p.Means()
		if s := p.Stats(); s.Begun != 3 || s.Whole() != 3 || takes.Round(time.Millisecond) != 30*time.Second {
			t.Errorf("what never began counts: %+v, D %v", s, takes)
		}
		begins(t, p, "g")
		if lag := p.Whole("g", pace.Given, -1); lag != 0 {
			t.Errorf("it began in the version in which it began at last, and lags %d", lag)
		}
		leave, err = p.Sample(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p.Pause()
		<-leave
	})
}
