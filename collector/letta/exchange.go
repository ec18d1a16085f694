package letta

import (
	"context"
	"net/http"
	"time"
)

// An Exchange is one request and what came of it.
type Exchange struct {
	// Op says in words what was asked: one of Ops.
	Op     string
	Method string
	// Code is the HTTP status, or 0 where no answer came.
	Code int
	// Bytes is how much of the answer's body was read.
	Bytes int64
	// Started is when it was sent.
	Started time.Time
	// Duration is how long it took until all of the answer was read and understood.
	Duration time.Duration
	// Err is why it failed, or nil; it holds no secrets.
	Err error
}

// Ops lists the words of Exchange.Op: the label of a metric stays bounded.
func Ops() []string {
	return []string{
		"cancel", "change agent", "count agents", "create agent", "create conversation", "create provider", "create tool", "delete agent", "export agent",
		"feedback of step", "get agent", "get conversation", "get message", "get run", "get step", "health", "import agent",
		"list agents", "list conversations", "list messages", "list messages of run", "list models", "list providers", "list runs", "list steps",
		"list steps of run", "list tools", "messages of step", "metrics of step", "run tool", "send", "trace of step", "upsert tool", "usage of run",
	}
}

// An observed is a request on its way.
type observed struct {
	Exchange
	body *watchedBody
	end  func(Exchange)
}

// observe begins an exchange. It returns the context for its requests.
func (c *Client) observe(ctx context.Context, r *request) (context.Context, *observed) {
	if c.cfg.Observe == nil {
		return ctx, nil
	}
	o := &observed{Exchange: Exchange{Op: r.op, Method: r.method, Started: time.Now()}}
	ctx, o.end = c.cfg.Observe(ctx, r.op, r.method)
	return ctx, o
}

// answered notes the status.
func (o *observed) answered(resp *http.Response) {
	if o != nil {
		o.Code = resp.StatusCode
	}
}

// reads notes the body that is read.
func (o *observed) reads(body *watchedBody) {
	if o != nil {
		o.body = body
	}
}

// done ends the exchange with what came of it.
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
