package bpe_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime is the processor time that this thread has used: on a busy machine it
// says more than the clock.
func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(t.Nano())
}
