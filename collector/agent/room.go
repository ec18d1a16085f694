package agent

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// unsizedBytes is the assumed size of a reply without a Content-Length.
const unsizedBytes = 1 << 20

// A replyLimiter limits the total size of the replies that the agents of a backend hold. A reply
// counts from the time before it is read until Close. Without the limit, a slow sink would fill the
// memory with one reply per sample in flight.
//
// Only the first reply of an agent waits for room. Otherwise, agents that each hold a reply could
// wait for each other forever. A later reply is counted only if there is room for it.
type replyLimiter struct {
	size int64
	free *semaphore.Weighted // FIFO
}

func newReplyLimiter(bytes int64) *replyLimiter {
	return &replyLimiter{size: bytes, free: semaphore.NewWeighted(bytes)}
}

// acquire takes room for a reply of length bytes (-1 if unknown) and returns the number of bytes
// that it took. This number is at most r.size. If first is set, the agent holds no reply, and
// acquire waits for room until ctx is done. Otherwise, acquire takes nothing if there is no room.
func (r *replyLimiter) acquire(ctx context.Context, length int64, first bool) (taken int64, err error) {
	if length < 0 {
		length = unsizedBytes
	}
	length = min(length, r.size)
	switch {
	case first:
		err = r.free.Acquire(ctx, length)
	case !r.free.TryAcquire(length):
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return length, nil
}

func (r *replyLimiter) release(taken int64) { r.free.Release(taken) }
