package session_test

import (
	"math"
	"syscall"
	"testing"

	"github.com/rollout-rl/rollout/collector/session"
)

// TestBuildIsLinear checks that twice as many calls take about twice as much CPU time, not four times.
// No other test runs at the same time, because the test is not parallel.
func TestBuildIsLinear(t *testing.T) {
	const calls, most, tries = 2_000, 3.2, 10
	for _, shape := range conversationShapes {
		records := []*session.Record{manyConversations(calls, shape), manyConversations(2*calls, shape)}
		fastest := [2]int64{math.MaxInt64, math.MaxInt64}
		ratio := math.Inf(1)
		for try := 0; try < tries && ratio > most; try++ {
			for i, r := range records {
				began := cpuTime(t)
				if _, err := session.Build(r, session.Config{}); err != nil {
					t.Fatal(err)
				}
				fastest[i] = min(fastest[i], cpuTime(t)-began)
			}
			ratio = float64(fastest[1]) / float64(fastest[0])
		}
		t.Logf("%s: %d us for %d calls, %d us for %d calls", shape, fastest[0], calls, fastest[1], 2*calls)
		if ratio > most {
			t.Errorf("%s: twice as many calls take %.1f times as long", shape, ratio)
		}
	}
}

// cpuTime returns the CPU time of this process in microseconds.
func cpuTime(t *testing.T) int64 {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return (u.Utime.Nano() + u.Stime.Nano()) / 1e3
}
