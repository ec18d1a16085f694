package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	firstPause = 50 * time.Millisecond
	maxPause   = 2 * time.Second
	// A store is away if an operation has failed for this time.
	awayAfter = 3 * time.Second
)

// do repeats try until it succeeds, fails for good, or the context ends. Between two tries, do waits
// twice as long each time, with jitter. If the error of try is an *Error, its Op replaces op.
func (b *bucket) do(op, name string, try func() error) error {
	w := wait{since: time.Now()}
	defer func() { b.outage.ended(&w) }()
	e := Error{Path: place{bucket: b.bucket, prefix: b.key(name)}.String(), Op: op}
	if op != "open" && op != "list" {
		if e.Err = checkName(name); e.Err != nil {
			return &e
		}
	}
	for n := 0; ; n++ {
		err := try()
		if err == nil {
			w.ok = true
			return nil
		}
		e.Op = op
		if part, ok := err.(*Error); ok { //nolint:errorlint // try does not wrap it
			e.Op, err = part.Op, part.Err
		}
		err, temporary := b.explain(e.Op, err)
		stopped := b.ctx.Err() != nil && (temporary || errors.Is(err, b.ctx.Err()))
		if !stopped || e.Err == nil { // otherwise the try before was the last one
			e.Err = err
		}
		if !stopped {
			if !temporary || b.tries > 0 && (n+1 >= b.tries || errors.Is(err, ErrCredentials)) {
				return &e
			}
			failed := e
			b.outage.failed(&w, &failed)
		}
		pause := min(firstPause<<min(n, 10), maxPause)
		select {
		case <-b.ctx.Done():
			e.Err = fmt.Errorf("%w; the last try: %s", context.Cause(b.ctx), e.Err.Error())
			return &e
		case <-time.After(pause/2 + rand.N(pause/2+1)):
		}
	}
}

// A wait is the state of an operation that fails.
type wait struct {
	since time.Time // start of the operation
	away  bool      // counted in outage.waiting
	ok    bool      // the operation has succeeded
}

// An outage logs when the store is away and when it is back. The store is away while at least one
// operation has failed for awayAfter. Some operations can succeed in that time.
type outage struct {
	log     *slog.Logger
	mu      sync.Mutex
	waiting int // operations
	since   time.Time
}

func (o *outage) failed(w *wait, err error) {
	if w.away || time.Since(w.since) < awayAfter {
		return
	}
	w.away = true
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.waiting++; o.waiting == 1 {
		o.since = w.since
		o.log.Warn("the store is away; waiting for it", "err", err)
	}
}

func (o *outage) ended(w *wait) {
	if !w.away {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.waiting--; o.waiting == 0 && w.ok {
		o.log.Info("the store is back", "away", time.Since(o.since).Round(time.Millisecond))
	}
}
