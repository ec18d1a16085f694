package policy_test

import (
	"slices"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/policy"
)

// seen is called once for each number of a page, and not once the page proves nothing.
func TestSeen(t *testing.T) {
	t.Parallel()
	next := func(t *testing.T, seen <-chan int32) int32 {
		t.Helper()
		select {
		case v := <-seen:
			return v
		case <-time.After(time.Minute):
			t.Fatal("no version was reported")
			return 0
		}
	}
	asked := func(t *testing.T, p *page, n int) {
		t.Helper()
		for end := time.Now().Add(time.Minute); p.count() < n; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the page was not polled")
			}
		}
	}
	p := startPage(t, `{"weight_version":"3"}`)
	seen := make(chan int32, 100)
	runSeen(t, policy.Config{URL: p.URL, OneEngine: true, Every: time.Millisecond, Gap: time.Millisecond}, func(v int32) { seen <- v })
	got := []int32{next(t, seen)}
	asked(t, p, p.count()+3)
	p.set(`"default"`)
	asked(t, p, p.count()+3)
	p.set("7")
	got = append(got, next(t, seen))
	asked(t, p, p.count()+3)
	p.set("5") // it falls, and is not requested any more
	asked(t, p, p.count()+1)
	if len(seen) > 0 || !slices.Equal(got, []int32{3, 7}) {
		t.Errorf("reported %v and %d more, want 3 and 7", got, len(seen))
	}
	unproven := startPage(t, "3")
	runSeen(t, policy.Config{URL: unproven.URL}, func(v int32) { t.Errorf("reported %d from a page that proves nothing", v) })
	asked(t, unproven, 1)
}
