package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
)

const (
	firstPause = 50 * time.Millisecond
	maxPause   = 2 * time.Second
	// A store is away if an operation has failed for this time.
	awayAfter = 3 * time.Second

	// The limits of the check in Open: the number of tries, and the time if the store answers.
	openTries  = 4
	openGiveUp = time.Minute
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
		_, answered := errors.AsType[minio.ErrorResponse](err)
		err, temporary := b.explain(e.Op, err)
		stopped := b.ctx.Err() != nil && (temporary || errors.Is(err, b.ctx.Err()))
		if !stopped || e.Err == nil { // otherwise the try before was the last one
			e.Err = err
		}
		if !stopped {
			if !temporary || b.hopeless(n+1, time.Since(w.since), err, answered) {
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

// hopeless reports whether an operation that has failed is not repeated, although the error is temporary.
// answered means that err is an answer of the store.
func (b *bucket) hopeless(tries int, took time.Duration, err error, answered bool) bool {
	if overloaded := answered && errors.Is(err, ErrUnreachable); b.opening && !overloaded {
		return tries >= openTries || errors.Is(err, ErrCredentials)
	}
	return b.giveUp > 0 && (took >= b.giveUp || errors.Is(err, ErrFull))
}

// A wait is the state of an operation that fails.
type wait struct {
	since time.Time // start of the operation
	away  bool      // counted in outage.waiting
	ok    bool      // the operation has succeeded
}

// An outage logs when the store is away or full, and when this has ended. The store is away while at
// least one operation has failed for awayAfter. Some operations can succeed in that time.
type outage struct {
	log     *slog.Logger
	mu      sync.Mutex
	waiting int // operations
	since   time.Time
	full    bool // the first of these operations failed because the store is full
}

func (o *outage) failed(w *wait, err error) {
	if w.away || time.Since(w.since) < awayAfter {
		return
	}
	w.away = true
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.waiting++; o.waiting > 1 {
		return
	}
	o.since, o.full = w.since, errors.Is(err, ErrFull)
	if o.full {
		o.log.Warn("waiting for room in the store", "err", err)
	} else {
		o.log.Warn("the store is away; waiting for it", "err", err)
	}
}

func (o *outage) ended(w *wait) {
	if !w.away {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.waiting--; o.waiting > 0 || !w.ok {
		return
	}
	took := time.Since(o.since).Round(time.Millisecond)
	if o.full {
		o.log.Info("the store has room again", "full", took)
	} else {
		o.log.Info("the store is back", "away", took)
	}
}
