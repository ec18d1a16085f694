package agent

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

func TestReplyRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		r := newReplyLimiter(100)
		take := func(length int64, first bool) int64 {
			n, err := r.acquire(ctx, length, first)
			if err != nil {
				t.Errorf("take(%d): %v", length, err)
			}
			return n
		}
		if n := take(60, true); n != 60 {
			t.Errorf("a reply of 60 bytes took %d", n)
		}
		if n := take(60, false); n != 0 {
			t.Errorf("a later reply without room took %d, want 0", n)
		}
		if n := take(40, false); n != 40 {
			t.Errorf("a later reply for which there is room took %d, want 40", n)
		}

		var taken int64
		go func() { taken = take(1000, true) }() // larger than the whole room: passes alone
		synctest.Wait()
		if taken != 0 {
			t.Errorf("the first reply of another agent took %d of a full room", taken)
		}
		r.release(60)
		synctest.Wait()
		if taken != 0 {
			t.Errorf("a reply larger than the room took %d while others hold some", taken)
		}
		r.release(40)
		synctest.Wait()
		if taken != 100 {
			t.Errorf("a reply larger than the room took %d of it, want all 100", taken)
		}

		ended, end := context.WithCancel(ctx)
		var err error
		go func() { _, err = r.acquire(ended, -1, true) }()
		synctest.Wait()
		end()
		synctest.Wait()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("waiting ended with %v, want the context's error", err)
		}
		r.release(100)
		if !r.free.TryAcquire(100) {
			t.Error("room is lost")
		}
	})
}

// Held reports whether any agent holds room for replies.
func Held(b *Backend) bool {
	if !b.room.free.TryAcquire(b.room.size) {
		return true
	}
	b.room.release(b.room.size)
	return false
}
