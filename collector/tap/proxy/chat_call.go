package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/session/store"
	"github.com/rollout-rl/rollout/collector/tap/translate"
)

// A chatCall is a chat completion in a session, or a request that is translated into one. The section
// Sessions of the package comment lists the methods in the order in which they are called.
type chatCall struct {
	p         *Proxy
	w         http.ResponseWriter
	client    context.Context   // ends when the client disconnects
	x         exchange          // sends the request, and accounts for memory
	dialect   translate.Dialect // nil for a chat completion
	reply     translate.Reply   // nil for a chat completion
	q         *chatRequest
	streams   bool          // the client wants a stream
	req       *http.Request // the request to the engine
	header    http.Header   // the header of req without the headers that ask for ids
	admission *store.Admission
	able      *ability    // of the chosen engine
	model     string      // the name that the engine gets
	whole     atomic.Bool // the engine was asked for a whole answer although the client wants a stream
	rendered  *rendered   // nil if the engine renders the prompt
	view      *view
	reader    *reader
	call      session.Call
	session   string // the id
	share     *share // of the session
	reserved  int64  // the size of the request body, which counts in the share
	at        place  // of the request
	placed    bool   // at is known
	splices   []edit // the changes to the messages
	headed    bool   // the head of the answer was sent to the client
	out       []byte // not yet written to the client
	stored    bool   // record was called; failed is its result
	failed    error
	delivered bool // the client has the whole answer, and that is recorded
}

// maxAnswer limits the size of an answer that is not a stream, and of the message in a stream.
const maxAnswer = 64 << 20

// run sends the request and passes the answer to the client.
func (c *chatCall) run(ctx context.Context) {
	c.req = (&http.Request{Method: http.MethodPost, URL: &chatURL, Header: c.header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}).
		WithContext(context.WithValue(ctx, exchangeKey{}, &c.x))
	c.x.prepare, c.x.retract = c.prepare, c.retract
	defer c.recover()
	c.splice()
	a := c.send(ctx)
	if a.res != nil {
		defer a.res.Body.Close() //nolint:errcheck // the body has been read, or is not needed
	}
	c.respond(ctx, a)
}

// prepare changes the request for the chosen engine. It can run in another goroutine than the other
// methods, which do not run at the same time.
func (c *chatCall) prepare(e *engine) error {
	a, err := c.p.able(c.req.Context(), e, nil)
	if err != nil {
		return err
	}
	return c.fit(e, a)
}

// fit changes the request for an engine with the given ability. After an error, the request is unchanged.
func (c *chatCall) fit(e *engine, a *ability) error {
	model, a, err := c.p.model(c.req.Context(), e, a, c.view.name())
	if err != nil {
		return err
	}
	c.model, c.able, c.call.Engine = model, a, e.name
	if a.mode == modeRender {
		return c.fitRendered()
	}
	c.x.body = &payload{parts: c.q.parts(&c.p.cfg.Set, a, c.model, c.splices)}
	c.req.ContentLength = c.x.body.size()
	c.whole.Store(c.streams && (c.reply != nil || a.mode == modeWhole))
	c.req.Header = c.header
	if a.mode == modeHeader {
		c.req.Header = c.header.Clone()
		askInHeader(c.req.Header)
	}
	return nil
}

// An engineAnswer is the answer of an engine. body is the whole body, or nil if the answer is a
// stream, which has not been read.
type engineAnswer struct {
	res  *http.Response
	body []byte
	err  error
}

// send sends the request. It returns when a stream begins or when another answer is complete.
// Meanwhile, it keeps a client alive that wants a stream.
func (c *chatCall) send(ctx context.Context) engineAnswer {
	if !c.streams {
		return c.fetch()
	}
	done := make(chan engineAnswer, 1)
	go func() {
		a := engineAnswer{err: errPanic}
		c.p.guard("session", func() { a = c.fetch() })
		done <- a
	}()
	wait := time.NewTimer(c.p.limits.HoldHead)
	defer wait.Stop()
	for {
		select {
		case a := <-done:
			return a
		case <-wait.C:
			if ctx.Err() == nil && c.whole.Load() {
				c.begin()
				c.keepAlive()
				_ = c.flush() // if the client has disconnected, ctx ends
			}
			wait.Reset(c.p.limits.KeepAlive)
		}
	}
}

// fetch sends the request to an engine.
func (c *chatCall) fetch() (a engineAnswer) {
	a.res, a.err = roundTripper{c.p}.RoundTrip(c.req) //nolint:bodyclose // the caller closes it
	if a.err != nil {
		return a
	}
	c.x.body = nil
	if a.res.StatusCode == http.StatusOK && isStream(a.res.Header) {
		return a
	}
	if a.body, a.err = c.all(a.res); a.err == nil && c.rendered != nil && a.res.StatusCode == http.StatusOK {
		c.complete(&a)
	}
	return a
}

var chatURL = url.URL{Path: chatPath}

var errLargeAnswer = fmt.Errorf("the answer is larger than %d bytes", maxAnswer)

// all reads the body of an answer.
func (c *chatCall) all(res *http.Response) ([]byte, error) {
	var body []byte
	base := c.x.held // the request body
	if n := res.ContentLength; n > 0 && n <= int64(c.p.maxAnswer()) {
		c.x.hold(base + n) // reserve before reading
		body = make([]byte, 0, n)
	}
	for {
		if len(body) == cap(body) {
			body = slices.Grow(body, chunkBytes)
		}
		n, err := res.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		c.x.hold(base + int64(cap(body)))
		switch {
		case err == io.EOF:
			return body, nil
		case err != nil:
			return body, err
		case len(body) > c.p.maxAnswer():
			return nil, errLargeAnswer
		case c.p.memory.Load() > c.p.limits.MemoryBytes:
			return nil, errMemory
		}
	}
}

// unsent returns the answer to the client if no engine answered, or if the engine's answer broke
// off.
func (c *chatCall) unsent(ctx context.Context, err error) *refusal {
	if bad, ok := errors.AsType[*refusal](err); ok {
		c.call.Status = cmp.Or(c.call.Status, bad.status) // without a status, the engine counts as unreachable
		return bad
	}
	if errors.Is(context.Cause(ctx), store.ErrSealed) && c.client.Err() == nil {
		return errCanceled
	}
	c.p.count(func(s *Stats) { s.Unreachable++ })
	c.p.once(slog.LevelWarn, "engine_unreachable", err)
	// Some harnesses repeat a call only if they know the error by its words.
	return &refusal{http.StatusBadGateway, "engine_unreachable", fmt.Sprintf("service unavailable: no engine answered: %v", withoutBody(err))}
}

// end frees the memory of the call.
func (c *chatCall) end() {
	if c.reader != nil {
		c.p.guard("answer", c.reader.close)
	}
	c.share.bytes.Add(-c.reserved)
	c.x.hold(0)
	c.x.leave()
}
