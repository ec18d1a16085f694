package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"time"
)

// A roundTripper sends a request to the engine that the balance selects. If that engine cannot be
// reached, the roundTripper tries the next engine.
type roundTripper struct{ p *Proxy }

func (t roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	p, x := t.p, exchangeOf(req.Context())
	var tried []*engine
	var failed error
	stale := false // the request has already been resent because of a closed connection
	body := &closeless{Reader: req.Body}
	if req.Body == nil {
		body = nil
	}
	for {
		e := p.pick(x.chain, tried)
		if e == nil {
			return nil, failed
		}
		if err := x.chosen(e); err != nil {
			// Another engine that could not be reached might not refuse the request later.
			if _, refused := errors.AsType[*refusal](err); failed == nil || !refused {
				failed = err
			}
			x.leave()
			tried = append(tried, e)
			continue
		}
		again := true
		for again {
			sent := time.Now()
			res, reused, err := t.try(req, x, e, body)
			if err == nil {
				e.missed.Store(0)
				p.mark(e, false, nil)
				if x.restore(res) {
					finishOff(res.Body)
					continue
				}
				return res, nil
			}
			if ctx := req.Context(); ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			failed = err
			// If the engine has just closed an idle connection, the request fails immediately
			// although the engine is up. In this case, resend the request. After staleWithin, do
			// not resend the request, because the engine might have started to work on it.
			again = reused && !stale && x.body != nil && time.Since(sent) < staleWithin
			if again {
				stale = true
				p.count(func(s *Stats) { s.Stale++ })
				p.transport.CloseIdleConnections()
			}
		}
		e.errors.Add(1)
		unreached := isDial(failed)
		if unreached {
			p.mark(e, true, failed)
		}
		if !unreached || body != nil && x.body == nil && body.read {
			return nil, failed // the engine might have started to work on the request
		}
		x.leave()
		tried = append(tried, e)
	}
}

// An error that occurs within staleWithin is attributed to a closed connection. Such an error is
// usually detected within one round trip to the engine.
const staleWithin = time.Second

// try sends the request to one engine. reused is true if the connection had been used before.
func (t roundTripper) try(req *http.Request, x *exchange, e *engine, body *closeless) (res *http.Response, reused bool, err error) {
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused }}
	out := req.WithContext(httptrace.WithClientTrace(req.Context(), trace))
	to := *req.URL
	to.Scheme, to.Host = e.url.Scheme, e.url.Host
	if e.url.Path != "" && e.url.Path != "/" {
		joined := e.url.JoinPath(req.URL.EscapedPath())
		to.Path, to.RawPath = joined.Path, joined.RawPath
	}
	out.URL, out.Host = &to, e.url.Host
	if e.url.User != nil && out.Header.Get("Authorization") == "" {
		out.Header = out.Header.Clone()
		e.authorize(out)
	}
	switch {
	case x.body != nil && x.body.size() > 0:
		out.Body = x.body.send()
		out.GetBody = func() (io.ReadCloser, error) { return x.body.send(), nil } // net/http calls GetBody to retry a request if it has not yet sent anything
		if req.ContentLength >= 0 {
			out.ContentLength = x.body.size()
		}
	case body != nil:
		out.Body = body
	}
	res, err = t.p.transport.RoundTrip(out)
	return res, reused, err
}

// finishOff closes the body of an answer that is not needed. First it reads up to 64 KiB of the
// body, so that the connection can be reused if the rest of the body is short.
func finishOff(body io.ReadCloser) {
	_, _ = io.Copy(io.Discard, io.LimitReader(body, 64<<10))
	_ = body.Close()
}

// A wire is a connection to an engine. It copies bodies through pooled buffers, because net/http
// would allocate 32 KB for every body that does not fit in its write buffer.
type wire struct{ net.Conn }

func (w wire) ReadFrom(r io.Reader) (int64, error) {
	room := streamRooms.Get().(*[streamBytes]byte) //nolint:forcetypeassert // the pool contains nothing else
	defer streamRooms.Put(room)
	return io.CopyBuffer(struct{ io.Writer }{w.Conn}, r, room[:])
}

func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// pick calls balance.pick. If balance.pick panics, pick selects the first engine.
func (p *Proxy) pick(c chain, tried []*engine) (e *engine) {
	if !p.guard("balance", func() { e = p.balance.pick(c, tried) }) && len(tried) == 0 {
		e = p.balance.engines[0]
		e.busy.Add(1)
	}
	if e != nil {
		p.guard("balance", func() { p.balance.places.put(c, e) })
	}
	return e
}

func (p *Proxy) mark(e *engine, down bool, why error) {
	if e.down.Swap(down) == down {
		return
	}
	if down {
		e.trial.able.Store(nil) // another version might start
		p.cfg.Log.Warn("engine_down", "engine", e.name, "error", withoutBody(why).Error())
	} else {
		p.cfg.Log.Info("engine_up", "engine", e.name)
	}
}
