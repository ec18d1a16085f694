package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/session/store"
)

// A share counts the open calls of a session, and the bytes of their request bodies. A call is open
// before its body arrives.
type share struct {
	calls int // protected by Proxy.mu
	bytes atomic.Int64
}

// enterCall counts a call of a session as open. If too many calls are open, it returns nil.
func (p *Proxy) enterCall(id string) *share {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.shares[id]
	if s == nil {
		s = &share{}
		p.shares[id] = s
	}
	if s.calls >= p.limits.OpenCalls {
		return nil
	}
	s.calls++
	return s
}

func (p *Proxy) tooManyCalls() *refusal {
	return &refusal{http.StatusTooManyRequests, "too_many_calls", fmt.Sprintf("%d calls of this session are open, the limit", p.limits.OpenCalls)}
}

func (p *Proxy) leaveCall(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.shares[id]
	if s.calls--; s.calls == 0 {
		delete(p.shares, id)
	}
}

// chat serves a call of a session: a chat completion, or a request that is translated into one. The
// session admits the call before its body is read, so that a client without an open session cannot fill
// the memory.
func (p *Proxy) chat(w http.ResponseWriter, r *http.Request, t *target) *refusal {
	id := t.session.ID()
	share := p.enterCall(id)
	if share == nil {
		return p.tooManyCalls()
	}
	defer p.leaveCall(id)
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	a, err := t.session.Admit(cancel)
	if err != nil {
		return refused(err)
	}
	defer a.Done()
	if a.Number() > p.limits.Calls {
		return &refusal{http.StatusForbidden, "too_many_calls", fmt.Sprintf("this session has made %d calls, the limit", p.limits.Calls)}
	}
	_, dialect := apiOf(t.path)
	c := &chatCall{p: p, w: w, client: r.Context(), dialect: dialect, session: id, share: share, admission: a, x: exchange{p: p}}
	defer c.end()
	if bad := c.read(ctx, r); bad != nil {
		return bad
	}
	defer p.limitWrites(ctx, w)()
	p.count(func(s *Stats) { s.Calls++ })
	c.run(ctx)
	return nil
}

// limitWrites limits the time for writes to the client after ctx has ended. The end of a session waits
// for its calls, and a client that does not read must not delay it, or keep the call from being
// recorded. The caller must call stop before it returns, because the next request can use the same
// connection.
func (p *Proxy) limitWrites(ctx context.Context, w http.ResponseWriter) (stop func()) {
	limited := make(chan struct{})
	remove := context.AfterFunc(ctx, func() {
		defer close(limited)
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(p.limits.CancelTime))
	})
	return func() {
		if !remove() {
			<-limited
		}
	}
}

// receive calls read, which reads the body of a request, and gets an error from the connection if the
// body is late or ctx ends. receive returns nil if read returns nil, even if ctx has ended: a client can
// disconnect when it has sent the whole body. A session that was sealed meanwhile is an error.
func (p *Proxy) receive(ctx context.Context, w http.ResponseWriter, read func() error) *refusal {
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Now().Add(p.limits.BodyTime)) // only recorders in tests have no deadlines
	remove := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	err := read()
	ended := !remove()
	slow := errors.Is(err, os.ErrDeadlineExceeded)
	if ended || slow {
		w.Header().Set("Connection", "close") // reads from it fail from now on
	}
	bad, known := errors.AsType[*refusal](err)
	switch {
	case known:
		return bad
	case ended && errors.Is(context.Cause(ctx), store.ErrSealed):
		return errCanceled
	case slow:
		return &refusal{http.StatusRequestTimeout, "slow_body", fmt.Sprintf("the request body did not arrive within %v", p.limits.BodyTime)}
	case err != nil:
		return errIncomplete
	}
	_ = c.SetReadDeadline(time.Time{})
	return nil
}

// read reads and parses the request.
func (c *chatCall) read(ctx context.Context, r *http.Request) *refusal {
	p := c.p
	if encoded(r.Header) {
		return &refusal{http.StatusUnsupportedMediaType, "encoded", "the request body is compressed; send it uncompressed"}
	}
	if bad := c.reserve(max(0, r.ContentLength)); bad != nil {
		return bad
	}
	desk := newDesk()
	defer desk.free()
	var body []byte
	bad := p.receive(ctx, c.w, func() (err error) {
		var large *refusal
		body, _, err = desk.read(r.Body, r.ContentLength, func(n int64) bool {
			large = c.reserve(n)
			return large == nil
		})
		if large != nil {
			return large
		}
		return err
	})
	if bad != nil {
		return bad
	}
	c.call = session.Call{Call: *newCall(openai{}), Tools: -1, Retry: retryOf(r.Header)}
	c.call.Agent, c.call.ParentAgent = agentsOf(r.Header)
	if body, bad = c.chatBody(body); bad != nil {
		return bad
	}
	var err error
	if c.q, err = parseChat(desk.s, body); err != nil {
		p.count(func(s *Stats) { s.Unread["malformed"]++ })
		return &refusal{http.StatusBadRequest, "bad_request", "the body is not a chat completion: " + strings.TrimPrefix(err.Error(), "proxy: ")}
	}
	c.streams = c.streams || c.q.streamed
	c.call.Sampling = c.q.sampled(&p.cfg.Set)
	c.x.chain = chain{seedHash}
	for _, b := range []byte(c.session) {
		c.x.chain[0] = mix(c.x.chain[0], uint64(b)) // all calls of a session prefer the same engine
	}
	c.header = p.forwarded(r)
	c.view = viewOf(c.q, slices.ContainsFunc(idHeaders[:], func(name string) bool { return r.Header.Get(name) != "" }))
	c.view.hide(p.cfg.Inside, c.q)
	return nil
}

// reserve sets the size of the request body to n bytes, before they are read. It returns an error if
// the body must not be read.
func (c *chatCall) reserve(n int64) *refusal {
	p := c.p
	if n > p.limits.BodyBytes {
		return tooLarge(p.limits.BodyBytes)
	}
	own := c.share.bytes.Add(n - c.reserved)
	c.reserved = n
	c.x.hold(n)
	if own > p.limits.ShareBytes || p.memory.Load() > p.limits.MemoryBytes {
		return errMemory
	}
	return nil
}

// retryOf returns the number of earlier tries that the client states, or -1.
func retryOf(h http.Header) int {
	n, err := strconv.Atoi(h.Get("X-Stainless-Retry-Count"))
	if err != nil || n < 0 || n > 1<<20 {
		return -1
	}
	return n
}

// forwarded returns the header for the engine. It lacks keys and the tap's token.
func (p *Proxy) forwarded(r *http.Request) http.Header {
	h := r.Header.Clone()
	for _, value := range h["Connection"] {
		for name := range strings.SplitSeq(value, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range []string{
		"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"Content-Length", "Accept-Encoding", "Expect", "Cookie",
	} {
		h.Del(name)
	}
	p.removeSecrets(h)
	h.Set("Content-Type", "application/json")
	return h
}
