package agent

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// unsizedBytes is counted for a reply whose length the server does not say.
const unsizedBytes = 1 << 20

// A replyRoom bounds the bytes of the replies that the agents of a backend hold, from
// before they are read until Close. Without it a sink that is slower than the servers would
// fill the memory with one reply per sample in flight.
//
// Only the first reply of an agent waits. If later ones waited too, agents that each hold
// one reply could wait for each other. A later reply is counted where there is room.
type replyRoom struct {
	size int64
	free *semaphore.Weighted // serves those who wait in order
}

func newReplyRoom(bytes int64) *replyRoom {
	return &replyRoom{size: bytes, free: semaphore.NewWeighted(bytes)}
}

// take makes room for a reply of length bytes and returns how many it took. The length is -1
// where it is not known. A reply larger than all the room passes alone. Where first, the
// agent holds nothing yet: then take waits for room, until ctx is done.
func (r *replyRoom) take(ctx context.Context, length int64, first bool) (taken int64, err error) {
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

func (r *replyRoom) give(taken int64) { r.free.Release(taken) }
