package proxy

import (
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
)

// An engine contains the state of one inference server.
type engine struct {
	url  *url.URL
	name string // the URL without the user name and password

	busy   atomic.Int64 // number of open requests
	calls  atomic.Int64 // number of requests sent
	errors atomic.Int64 // number of requests without an answer
	down   atomic.Bool
	missed atomic.Int64 // number of consecutive failed checks
	trial  trial
}

func newEngine(u *url.URL) *engine {
	open := *u
	open.User = nil
	return &engine{url: u, name: open.String(), trial: newTrial()}
}

// authorize adds the user name and password of the engine's URL, if any, to a request.
func (e *engine) authorize(req *http.Request) {
	if user := e.url.User; user != nil {
		password, _ := user.Password()
		req.SetBasicAuth(user.Username(), password)
	}
}

type balance struct {
	engines []*engine
	places  places
}

// pick selects an engine for a request and counts the request as open. It prefers the engine that
// received the longest known prefix of c, unless that engine is down or crowded. Otherwise it
// selects the least busy engine among the engines that are up or, if all are down, among all
// engines. pick skips engines that have already been tried. If no engine is left, it returns nil.
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

// before reports whether engine a is preferred to engine b. An engine that is up is preferred, then
// the engine with fewer open requests, then the engine with fewer requests in total.
func before(a, b *engine) bool {
	if down := a.down.Load(); down != b.down.Load() {
		return !down
	}
	if x, y := a.busy.Load(), b.busy.Load(); x != y {
		return x < y
	}
	return a.calls.Load() < b.calls.Load()
}

// crowded reports whether engine e is so much busier than the least busy engine that the prefix in
// its cache does not make up for the longer wait.
func crowded(e, least *engine) bool {
	few := least.busy.Load()
	return e.busy.Load() > few+max(4, few/2)
}
