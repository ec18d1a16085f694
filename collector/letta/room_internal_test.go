package letta

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestBodyWaits checks that an answer of unknown length, and a large answer to a call, do not time
// out while they wait for their turn.
func TestBodyWaits(t *testing.T) {
	t.Parallel()
	for _, large := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c, err := NewClient(ClientConfig{BaseURL: "http://127.0.0.1:1"})
			if err != nil {
				t.Fatal(err)
			}
			turn, text := c.unsized, "text"
			if large {
				turn, text = c.large, strings.Repeat(" ", largeCall)+"{}"
			}
			for range cap(turn) { // others are being read
				turn <- struct{}{}
			}
			ctx, stop := context.WithCancelCause(t.Context())
			defer stop(nil)
			watched := c.watch(io.NopCloser(strings.NewReader(text)), stop)
			defer watched.close()
			go func() {
				time.Sleep(10 * c.cfg.IdleBodyTimeout)
				<-turn
			}()
			if large {
				if undecoded, err := c.decodeWhole(ctx, watched, -1, plain(new(struct{}))); undecoded != nil || err != nil {
					t.Errorf("%v, %v", undecoded, err)
				}
			} else {
				body := &unsizedBody{ctx: ctx, from: watched, turn: turn}
				defer body.done()
				if got, err := io.ReadAll(body); err != nil || string(got) != text {
					t.Errorf("read %q, %v", got, err)
				}
			}
			if ctx.Err() != nil {
				t.Errorf("given up: %v", context.Cause(ctx))
			}
		})
	}
}
