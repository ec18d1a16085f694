//go:build !linux

package bpe_test

import (
	"testing"
	"time"
)

var started = time.Now()

// cpuTime is the time of the clock where that of the thread is not known.
func cpuTime(testing.TB) time.Duration { return time.Since(started) }
