package letta

import (
	"context"
	"fmt"
	"io"
	"time"
)

// watch wraps the body of an answer. If no byte arrives for IdleBodyTimeout, it calls stop with
// errStalled.
func (c *Client) watch(body io.ReadCloser, stop context.CancelCauseFunc) *watchedBody {
	idle := c.cfg.IdleBodyTimeout
	return &watchedBody{body: body, idle: idle, timer: time.AfterFunc(idle, func() {
		stop(fmt.Errorf("%w: no byte received for %v", errStalled, idle))
	})}
}

// A watchedBody is the body of an answer with a limit on the time between two bytes. The field read
// counts the bytes that have been read.
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

// pause stops the timer until the next Read. It is called while the reader waits for its turn.
func (w *watchedBody) pause() { w.timer.Stop() }

func (w *watchedBody) close() {
	w.timer.Stop()
	_ = w.body.Close()
}

// An unsizedBody is a body of unknown length. The field free is the number of bytes that can still
// be read without the turn. Only one body can have the turn.
type unsizedBody struct {
	ctx  context.Context //nolint:containedctx // the context of the send that receives the body
	from *watchedBody
	turn chan struct{}
	free int64
	has  bool // the body has the turn
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

func (b *unsizedBody) done() {
	if b.has {
		<-b.turn
	}
}
