package proxy

import (
	"net/url"
	"slices"
	"sync/atomic"
)

// An engine is one inference server.
type engine struct {
	url  *url.URL
	name string // the URL without a password

	busy   atomic.Int64 // requests that are with it
	calls  atomic.Int64 // requests that it was given
	errors atomic.Int64 // requests that it did not answer
	down   atomic.Bool
	missed atomic.Int64 // checks in a row that it failed
}

func newEngine(u *url.URL) *engine {
	open := *u
	open.User = nil
	return &engine{url: u, name: open.String()}
}

// A balance gives requests to engines.
type balance struct {
	engines []*engine
	places  places
}

// pick returns the engine for a request, which has one more request then: the one that had the
// request's chain, or the least busy. Engines of tried are left out. Those that are down come
// last: if all are, one of them is tried. It returns nil if there is none left.
func (b *balance) pick(c chain, tried []*engine) *engine {
	var least *engine
	for _, e := range b.engines {
		if slices.Contains(tried, e) {
			continue
		}
		if least == nil || before(e, least) {
			least = e
		}
	}
	if least == nil {
		return nil
	}
	if e := b.places.find(c); e != nil && e != least && !e.down.Load() && !slices.Contains(tried, e) && !crowded(e, least) {
		least = e
	}
	least.busy.Add(1)
	least.calls.Add(1)
	return least
}

// before reports whether a request goes rather to a than to b. Of two that are equally busy the
// one that had fewer requests comes first.
func before(a, b *engine) bool {
	if down := a.down.Load(); down != b.down.Load() {
		return !down
	}
	if x, y := a.busy.Load(), b.busy.Load(); x != y {
		return x < y
	}
	return a.calls.Load() < b.calls.Load()
}

// crowded reports whether e is so much busier than least that a prefix which it has cached is
// not worth the wait.
func crowded(e, least *engine) bool {
	few := least.busy.Load()
	return e.busy.Load() > few+max(4, few/2)
}
