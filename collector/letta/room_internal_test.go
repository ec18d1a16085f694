package letta

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestReplyRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		r := newReplyRoom(100)
		take := func(length int64, first bool) int64 {
			n, err := r.take(ctx, length, first)
			if err != nil {
				t.Errorf("take(%d): %v", length, err)
			}
			return n
		}
		if n := take(60, true); n != 60 {
			t.Errorf("a reply of 60 bytes took %d", n)
		}
		if n := take(60, false); n != 0 {
			t.Errorf("a later reply for which there is no room took %d, want that it is not counted", n)
		}
		if n := take(40, false); n != 40 {
			t.Errorf("a later reply for which there is room took %d, want 40", n)
		}

		var taken int64
		go func() { taken = take(1000, true) }() // larger than all the room: passes alone
		synctest.Wait()
		if taken != 0 {
			t.Errorf("the first reply of another agent took %d of a full room", taken)
		}
		r.give(60)
		synctest.Wait()
		if taken != 0 {
			t.Errorf("a reply larger than the room took %d while others hold some", taken)
		}
		r.give(40)
		synctest.Wait()
		if taken != 100 {
			t.Errorf("a reply larger than the room took %d of it, want all 100", taken)
		}

		ended, end := context.WithCancel(ctx)
		var err error
		go func() { _, err = r.take(ended, -1, true) }()
		synctest.Wait()
		end()
		synctest.Wait()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("waiting ended with %v, want the context's error", err)
		}
		r.give(100)
		if !r.free.TryAcquire(100) {
			t.Error("room is lost")
		}
	})
}

// Held says that some agent holds room for replies.
func Held(b *Backend) bool {
	if !b.room.free.TryAcquire(b.room.size) {
		return true
	}
	b.room.give(b.room.size)
	return false
}

// An answer of unknown length that waits for its turn to be read is not taken for one of
// which no byte comes, however long that is.
func TestUnsizedBodyWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, err := NewClient(ClientConfig{BaseURL: "http://127.0.0.1:1"})
		if err != nil {
			t.Fatal(err)
		}
		c.unsized <- struct{}{} // another is being read
		ctx, stop := context.WithCancelCause(t.Context())
		defer stop(nil)
		watched := c.watch(io.NopCloser(strings.NewReader("text")), stop)
		defer watched.close()
		body := &unsizedBody{ctx: ctx, from: watched, turn: c.unsized}
		defer body.done()
		go func() {
			time.Sleep(10 * c.cfg.IdleBodyTimeout)
			<-c.unsized
		}()
		if text, err := io.ReadAll(body); err != nil || string(text) != "text" || ctx.Err() != nil {
			t.Errorf("read %q, %v; given up: %v", text, err, context.Cause(ctx))
		}
	})
}

// The same for a large answer to a call.
func TestLargeCallWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, err := NewClient(ClientConfig{BaseURL: "http://127.0.0.1:1"})
		if err != nil {
			t.Fatal(err)
		}
		for range largeCalls {
			c.large <- struct{}{}
		}
		ctx, stop := context.WithCancelCause(t.Context())
		defer stop(nil)
		watched := c.watch(io.NopCloser(strings.NewReader(strings.Repeat(" ", largeCall)+"{}")), stop)
		defer watched.close()
		go func() {
			time.Sleep(10 * c.cfg.IdleBodyTimeout)
			<-c.large
		}()
		if undecoded, err := c.decodeWhole(ctx, watched, new(struct{})); undecoded != nil || err != nil || ctx.Err() != nil {
			t.Errorf("%v, %v; given up: %v", undecoded, err, context.Cause(ctx))
		}
	})
}
