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

// A roundTripper sends a request to the engine that the balance chooses, and to the next one
// if that cannot be reached.
type roundTripper struct{ p *Proxy }

// RoundTrip implements http.RoundTripper.
func (t roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	p, x := t.p, exchangeOf(req.Context())
	var tried []*engine
	var failed error
	stale := false // a connection was used that the engine had closed, and not for the first time
	body := &closeless{Reader: req.Body}
	if req.Body == nil {
		body = nil
	}
	for {
		e := p.pick(x.chain, tried)
		if e == nil {
			return nil, failed
		}
		x.chosen(e)
		again := true
		for again {
			sent := time.Now()
			res, reused, err := t.try(req, x, e, body)
			if err == nil {
				e.missed.Store(0)
				p.mark(e, false, nil)
				if x.restore(res.StatusCode) {
					finishOff(res.Body)
					continue
				}
				return res, nil
			}
			if ctx := req.Context(); ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			failed = err
			// A request on a connection that was used before may have met its end: nothing
			// came back, and the engine is there.
			// One that it had for longer is not sent again: the engine may have worked on it, and
			// may end by it a second time.
			again = reused && !stale && x.body != nil && time.Since(sent) < staleWithin
			if again {
				stale = true
				p.stats.stale.Add(1)
				p.transport.CloseIdleConnections()
			}
		}
		e.errors.Add(1)
		unreached := isDial(failed)
		if unreached {
			p.mark(e, true, failed)
		}
		if !unreached || body != nil && x.body == nil && body.read {
			return nil, failed // the engine may have begun with it
		}
		e.busy.Add(-1)
		x.engine = nil
		tried = append(tried, e)
	}
}

// staleWithin is how soon a connection that the engine had closed is known to be: about the
// time that the request takes to get there.
const staleWithin = time.Second

// try sends the request to one engine. reused reports whether it went over a connection that
// had been used.
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
	if user := e.url.User; user != nil && out.Header.Get("Authorization") == "" {
		out.Header = out.Header.Clone()
		password, _ := user.Password()
		out.SetBasicAuth(user.Username(), password)
	}
	switch {
	case x.body != nil && x.body.size() > 0:
		out.Body = x.body.send()
		out.GetBody = func() (io.ReadCloser, error) { return x.body.send(), nil } // where nothing of it was sent
		if req.ContentLength >= 0 {
			out.ContentLength = x.body.size()
		}
	case body != nil:
		out.Body = body
	}
	res, err = t.p.transport.RoundTrip(out)
	return res, reused, err
}

// finishOff reads what is left of an answer that nobody wants, so that its connection can be
// used again, and closes it. A long one is not worth it.
func finishOff(body io.ReadCloser) {
	_, _ = io.Copy(io.Discard, io.LimitReader(body, 64<<10))
	_ = body.Close()
}

// A wire is a connection to an engine. It copies a body through a buffer that is used again:
// net/http would make one of 32 KB for each body that is longer than its own.
type wire struct{ net.Conn }

func (w wire) ReadFrom(r io.Reader) (int64, error) {
	buf := copies.Get()
	defer copies.Put(buf)
	return io.CopyBuffer(struct{ io.Writer }{w.Conn}, r, buf)
}

// isDial reports whether err means that no connection was made.
func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// pick is balance.pick, and any engine at all if that panics.
func (p *Proxy) pick(c chain, tried []*engine) (e *engine) {
	ok := false
	p.guard("balance", func() { e = p.balance.pick(c, tried); ok = true })
	if !ok && len(tried) == 0 {
		e = p.balance.engines[0]
		e.busy.Add(1)
	}
	if e != nil {
		p.guard("balance", func() { p.balance.places.put(c, e) })
	}
	return e
}

// mark notes that an engine is down or up, and logs the change.
func (p *Proxy) mark(e *engine, down bool, why error) {
	if e.down.Swap(down) == down {
		return
	}
	if down {
		p.cfg.Log.Warn("engine_down", "engine", e.name, "error", withoutBody(why).Error())
	} else {
		p.cfg.Log.Info("engine_up", "engine", e.name)
	}
}
