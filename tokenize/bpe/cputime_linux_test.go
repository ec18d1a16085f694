package bpe_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime returns this thread's processor time, which other processes disturb less than wall time.
func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(t.Nano())
}
