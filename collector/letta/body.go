package letta

import (
	"context"
	"fmt"
	"io"
	"time"
)

// watch returns the body under a timer: it calls stop with errStalled when no byte came for
// IdleBodyTimeout.
func (c *Client) watch(body io.ReadCloser, stop context.CancelCauseFunc) *watchedBody {
	idle := c.cfg.IdleBodyTimeout
	return &watchedBody{body: body, idle: idle, timer: time.AfterFunc(idle, func() {
		stop(fmt.Errorf("%w: no byte for %v", errStalled, idle))
	})}
}

// A watchedBody is a body whose reading must not stall. It counts what is read.
type watchedBody struct {
	body  io.ReadCloser
	idle  time.Duration
	timer *time.Timer
	read  int64
}

func (w *watchedBody) Read(p []byte) (int, error) {
	w.timer.Reset(w.idle)
	n, err := w.body.Read(p)
	w.read += int64(n)
	return n, err
}

// pause ends the watch until the next Read: a reader that waits for its turn does not wait
// for the server.
func (w *watchedBody) pause() { w.timer.Stop() }

// close ends the watch and closes the body.
func (w *watchedBody) close() {
	w.timer.Stop()
	_ = w.body.Close()
}

// An unsizedBody is a body whose length the server does not say. It has room for some bytes;
// beyond them it waits until it is the only one of its kind.
type unsizedBody struct {
	ctx  context.Context //nolint:containedctx // that of the one send whose body it is
	from *watchedBody
	turn chan struct{}
	free int64
	has  bool // its turn
}

func (b *unsizedBody) Read(p []byte) (int, error) {
	if b.free <= 0 && !b.has {
		b.from.pause()
		select {
		case b.turn <- struct{}{}:
			b.has = true
		case <-b.ctx.Done():
			return 0, b.ctx.Err()
		}
	}
	n, err := b.from.Read(p)
	b.free -= int64(n)
	return n, err
}

// done lets the next one read.
func (b *unsizedBody) done() {
	if b.has {
		<-b.turn
	}
}
