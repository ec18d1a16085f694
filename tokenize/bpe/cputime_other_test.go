//go:build !linux

package bpe_test

import (
	"testing"
	"time"
)

var started = time.Now()

// cpuTime returns wall time, because the thread's processor time is not available.
func cpuTime(testing.TB) time.Duration { return time.Since(started) }
