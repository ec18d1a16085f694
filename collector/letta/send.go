package letta

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/rollout-rl/rollout/tokenize"
)

// Send sends messages to the agent and waits for the whole answer, which may take
// as long as all calls of the model together. The turns go into reply, which is
// reset first; everything else but logprobs is returned. requestID is kept by the
// server with each step, and may be empty.
//
// A send is never repeated, by no layer: when the connection fails, the server
// may or may not have run the agent, and goes on running it.
func (c *Client) Send(ctx context.Context, agentID string, req *LettaRequest, requestID string, reply *tokenize.Reply) (*LettaResponse, error) {
	reply.Reset()
	return c.send(ctx, agentMessages(agentID), req, requestID, noRoom, func() *tokenize.Reply { return reply })
}

// SendConversation is Send on a conversation of an agent. The server ignores the
// token flags here and takes the agent's stored ones. Streaming is turned off in
// req where it is not set.
func (c *Client) SendConversation(ctx context.Context, conversationID string, req *LettaRequest, requestID string, reply *tokenize.Reply) (*LettaResponse, error) {
	if req.Streaming == nil {
		copied := *req
		copied.Streaming = new(bool)
		req = &copied
	}
	reply.Reset()
	return c.send(ctx, conversationMessages(conversationID), req, requestID, noRoom, func() *tokenize.Reply { return reply })
}

func agentMessages(id string) target        { return at("/v1/agents/{}/messages", id) }
func conversationMessages(id string) target { return at("/v1/conversations/{}/messages", id) }

// noRoom is the room of a caller who bounds nothing.
func noRoom(context.Context, int64) error { return nil }

// send posts a request and decodes its answer. It asks for room, with the length of the
// answer or -1, when the answer begins, and for the arena when it is its turn to be read,
// so that a request that waits for the model holds none: at 512 in flight with 1 MB
// replies that is 100 MB.
func (c *Client) send(ctx context.Context, to target, req *LettaRequest, requestID string, room func(context.Context, int64) error, arena func() *tokenize.Reply) (_ *LettaResponse, err error) {
	if to.err != nil {
		return nil, fmt.Errorf("send: %w", to.err)
	}
	body, err := marshalText(req)
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

	if err := room(ctx, resp.ContentLength); err != nil {
		_ = resp.Body.Close()
		return nil, c.transportError(ctx, r, err)
	}
	reply, err := c.read(ctx, resp, stop, seen, arena)
	if err != nil {
		return nil, c.transportError(ctx, r, err)
	}
	out := new(LettaResponse)
	if err := json.Unmarshal(reply.Rest, out); err != nil {
		return nil, &APIError{
			Op: r.op, Method: r.method, Path: r.target.path, RequestID: r.id, Status: resp.StatusCode,
			Detail: oneLine(c.secrets.scrub("answer cannot be decoded: " + err.Error())),
			Err:    &tokenize.DecodeError{Err: err}, // the rollout was made: another would read no better
		}
	}
	return out, nil
}

// read decodes the body of an answer when there is room for it among those that are
// being read.
func (c *Client) read(ctx context.Context, resp *http.Response, stop context.CancelCauseFunc, seen *observed, arena func() *tokenize.Reply) (*tokenize.Reply, error) {
	taken, err := c.reading.take(ctx, resp.ContentLength, true)
	if err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	defer c.reading.give(taken)
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

// An unsizedBody is a body that has room for so many bytes, and beyond them waits until it
// is the only one of its kind.
type unsizedBody struct {
	ctx  context.Context //nolint:containedctx // that of the one send whose body it is
	from *watchedBody
	turn chan struct{}
	free int64
	has  bool // its turn
}

func (b *unsizedBody) Read(p []byte) (int, error) {
	if b.free <= 0 && !b.has {
		b.from.pause()
		select {
		case b.turn <- struct{}{}:
			b.has = true
		case <-b.ctx.Done():
			return 0, b.ctx.Err()
		}
	}
	n, err := b.from.Read(p)
	b.free -= int64(n)
	return n, err
}

func (b *unsizedBody) done() {
	if b.has {
		<-b.turn
	}
}

func (c *Client) decoder() *tokenize.Decoder {
	if d, ok := c.decoders.Get().(*tokenize.Decoder); ok {
		return d
	}
	return tokenize.NewDecoder(c.cfg.Decoder)
}
