package letta

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestUnsizedBodyWaits checks that an answer does not time out while it waits for its turn.
func TestUnsizedBodyWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, err := NewClient(ClientConfig{BaseURL: "http://127.0.0.1:1"})
		if err != nil {
			t.Fatal(err)
		}
		c.unsized <- struct{}{} // another one is being read
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

// TestLargeCallWaits checks the same for a large answer to a call.
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
		if undecoded, err := c.decodeWhole(ctx, watched, -1, plain(new(struct{}))); undecoded != nil || err != nil || ctx.Err() != nil {
			t.Errorf("%v, %v; given up: %v", undecoded, err, context.Cause(ctx))
		}
	})
}
