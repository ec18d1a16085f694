package letta

import (
	"context"
	"fmt"
	"net/http"

	"github.com/rollout-rl/rollout/tokenize"
)

// Send sends messages to the agent and waits for the whole answer, which may take as long as
// all calls of the model together. It resets reply and puts the turns into it; it returns
// everything else but logprobs. The server keeps requestID with each step; it may be empty.
//
// No layer ever repeats a send. Where the connection fails, the server may be running the
// agent, and continues to.
func (c *Client) Send(ctx context.Context, agentID string, req *LettaRequest, requestID string, reply *tokenize.Reply) (*LettaResponse, error) {
	reply.Reset()
	return c.SendWith(ctx, SendOptions{
		AgentID: agentID, Request: req, RequestID: requestID, Reply: func() *tokenize.Reply { return reply },
	})
}

// SendConversation is [Client.Send] on a conversation of an agent. The server ignores the
// token flags here and uses the agent's stored ones.
func (c *Client) SendConversation(ctx context.Context, conversationID string, req *LettaRequest, requestID string, reply *tokenize.Reply) (*LettaResponse, error) {
	reply.Reset()
	return c.SendWith(ctx, SendOptions{
		ConversationID: conversationID, Request: req, RequestID: requestID, Reply: func() *tokenize.Reply { return reply },
	})
}

// SendOptions say what SendWith sends, and where its answer goes.
type SendOptions struct {
	// AgentID is the agent to send to. Where ConversationID is set, the send goes to that
	// conversation instead, and streaming is turned off where Request does not set it.
	AgentID, ConversationID string
	// Request is what is sent.
	Request *LettaRequest
	// RequestID is kept by the server with each step, and may be empty.
	RequestID string
	// Room, where set, is called when the answer begins, with its length, or -1 where the
	// server does not say it. The answer is read when it returns nil.
	Room func(ctx context.Context, length int64) error
	// Reply returns what the turns are decoded into. It is called when the answer is about
	// to be read, so that a request that waits for the model holds no memory for it: at
	// 512 in flight with 1 MB replies that is 100 MB.
	Reply func() *tokenize.Reply
}

// target returns where the send goes.
func (o *SendOptions) target() target {
	if o.ConversationID != "" {
		return at("/v1/conversations/{}/messages", o.ConversationID)
	}
	return at("/v1/agents/{}/messages", o.AgentID)
}

// SendWith is [Client.Send] for many sends at once: it bounds what is read, and asks for
// memory when it needs it.
func (c *Client) SendWith(ctx context.Context, o SendOptions) (_ *LettaResponse, err error) {
	to, requestID := o.target(), o.RequestID
	if o.ConversationID != "" && o.Request.Streaming == nil {
		copied := *o.Request
		copied.Streaming = new(false)
		o.Request = &copied
	}
	if to.err != nil {
		return nil, fmt.Errorf("send: %w", to.err)
	}
	body, err := Marshal(o.Request)
	if err != nil {
		return nil, fmt.Errorf("send: encode: %w", err)
	}
	r := &request{op: "send", method: http.MethodPost, target: to, id: requestID, body: body}

	ctx, seen := c.observe(ctx, r)
	defer func() { seen.done(err) }()
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.SendTimeout, errSendTimeout)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	resp, err := c.once(ctx, r)
	if err != nil {
		return nil, c.transportError(ctx, r, err)
	}
	seen.answered(resp)
	if resp.StatusCode != http.StatusOK {
		watched := c.watch(resp.Body, stop)
		defer watched.close()
		seen.reads(watched)
		return nil, c.statusError(r, resp, watched)
	}
	// A reply too long to be read is refused here; closing the body unread closes
	// the connection.
	if err := checkLength(resp, c.cfg.MaxReplyBytes); err != nil {
		_ = resp.Body.Close()
		return nil, c.transportError(ctx, r, err)
	}

	if o.Room != nil {
		if err := o.Room(ctx, resp.ContentLength); err != nil {
			_ = resp.Body.Close()
			return nil, c.transportError(ctx, r, err)
		}
	}
	reply, err := c.read(ctx, resp, stop, seen, o.Reply)
	if err != nil {
		return nil, c.transportError(ctx, r, err)
	}
	out, err := readWith[LettaResponse](newValidScanner(string(reply.Rest))) // the decoder refuses what is not UTF-8
	if err != nil {
		return nil, &APIError{
			Op: r.op, Method: r.method, Path: r.target.path, RequestID: r.id, Status: resp.StatusCode,
			Detail: oneLine(c.secrets.scrub("answer cannot be decoded: " + err.Error())),
			Err:    &tokenize.DecodeError{Err: err}, // the rollout was made: another would read no better
		}
	}
	return out, nil
}

// chunkedBytes is counted for a reply whose length the server does not say.
const chunkedBytes = 1 << 20

// read decodes the body of an answer as soon as there is room for it among those that are
// being read.
func (c *Client) read(ctx context.Context, resp *http.Response, stop context.CancelCauseFunc, seen *observed, arena func() *tokenize.Reply) (*tokenize.Reply, error) {
	size := resp.ContentLength
	if size < 0 {
		size = chunkedBytes
	}
	size = min(size, c.cfg.ReadBytes) // a larger one is read alone
	if err := c.reading.Acquire(ctx, size); err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	defer c.reading.Release(size)
	watched := c.watch(resp.Body, stop)
	defer watched.close()
	seen.reads(watched)
	body := &unsizedBody{ctx: ctx, from: watched, turn: c.unsized, free: chunkedBytes}
	defer body.done()
	if resp.ContentLength >= 0 {
		body.free = resp.ContentLength
	}
	reply := arena()
	decoder := c.decoder()
	defer c.decoders.Put(decoder)
	// Decode reads to the end of the body: only then is the connection used again.
	return reply, decoder.Decode(body, reply)
}

func (c *Client) decoder() *tokenize.Decoder {
	if d, ok := c.decoders.Get().(*tokenize.Decoder); ok {
		return d
	}
	return tokenize.NewDecoder(c.cfg.Decoder)
}

// DecodeTurns decodes an answer that is in memory.
func (c *Client) DecodeTurns(body []byte, arena *tokenize.Reply) error {
	d := c.decoder()
	defer c.decoders.Put(d)
	return d.DecodeBytes(body, arena)
}
