// Package wait pauses a goroutine until a duration has passed or an event occurs.
package wait

import (
	"context"
	"time"
)

// For waits for the duration d and returns true. It returns false as soon as ctx ends, or one of
// the channels is closed or delivers a value. For accepts at most three channels.
func For(ctx context.Context, d time.Duration, ends ...<-chan struct{}) bool {
	var end [3]<-chan struct{}
	copy(end[:], ends)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-end[0]:
	case <-end[1]:
	case <-end[2]:
	case <-ctx.Done():
	}
	return false
}
