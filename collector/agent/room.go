package agent

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// unsizedBytes is the assumed size of a reply without a Content-Length.
const unsizedBytes = 1 << 20

// A replyLimiter limits the total size of the replies that the agents of a backend hold. A reply's
// size is reserved before the reply is read, and released by Close. Without the limit, a slow sink
// would fill the memory with one reply per sample in flight.
//
// Only the first reply of an agent waits. Otherwise, agents that each hold a reply could wait for
// each other forever. A later reply is counted only if it fits within the limit.
type replyLimiter struct {
	size int64
	free *semaphore.Weighted // FIFO
}

func newReplyLimiter(bytes int64) *replyLimiter {
	return &replyLimiter{size: bytes, free: semaphore.NewWeighted(bytes)}
}

// acquire reserves bytes for a reply of the given length (-1 if unknown). It returns the number of
// reserved bytes, at most r.size. If first is set, the agent holds no reply, and acquire waits for
// free bytes until ctx is done. Otherwise, it reserves nothing if too few bytes are free.
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
