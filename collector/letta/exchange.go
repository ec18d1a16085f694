package letta

import (
	"context"
	"net/http"
	"time"
)

// An Exchange is one request and its outcome.
type Exchange struct {
	// Op is the operation in words, such as "create agent". There are about thirty different
	// operations.
	Op     string
	Method string
	// Code is the HTTP status, or 0 if there was no answer.
	Code int
	// Bytes counts the bytes read from the answer's body.
	Bytes int64
	// Started is the time just before the request was sent.
	Started time.Time
	// Duration is the time until the whole answer was read and decoded.
	Duration time.Duration
	// Err is the failure, or nil. It contains no secrets.
	Err error
}

type observed struct {
	Exchange
	body *watchedBody
	end  func(Exchange)
}

func (c *Client) observe(ctx context.Context, r *request) (context.Context, *observed) {
	if c.cfg.Observe == nil {
		return ctx, nil
	}
	o := &observed{Exchange: Exchange{Op: r.op, Method: r.method, Started: time.Now()}}
	ctx, o.end = c.cfg.Observe(ctx, r.op, r.method)
	return ctx, o
}

func (o *observed) answered(resp *http.Response, body *watchedBody) {
	if o != nil {
		o.Code, o.body = resp.StatusCode, body
	}
}

func (o *observed) done(err error) {
	if o == nil {
		return
	}
	o.Duration, o.Err = time.Since(o.Started), err
	if o.body != nil {
		o.Bytes = o.body.read
	}
	if o.end != nil {
		o.end(o.Exchange)
	}
}
