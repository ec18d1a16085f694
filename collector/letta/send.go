package letta

import (
	"context"
	"fmt"
	"net/http"

	"github.com/rollout-rl/rollout/tokenize"
)

// Send sends messages to the agent and waits for the whole answer, which takes as long as all
// model calls together. It resets reply and decodes the turns into it. It returns the rest of the
// answer without logprobs. The server stores requestID, which can be empty, with each step.
//
// No layer ever repeats a send. If the connection fails, the server might still run the agent.
func (c *Client) Send(ctx context.Context, agentID string, req *LettaRequest, requestID string, reply *tokenize.Reply) (*LettaResponse, error) {
	reply.Reset()
	return c.SendWith(ctx, SendOptions{
		AgentID: agentID, Request: req, RequestID: requestID, Reply: func() *tokenize.Reply { return reply },
	})
}

// SendOptions are the parameters of SendWith.
type SendOptions struct {
	// AgentID is the agent to send to. If ConversationID is set, the send goes to that
	// conversation, without streaming unless Request.Streaming is set. There the server ignores the
	// token flags of the request and uses the flags stored with the agent.
	AgentID, ConversationID string
	// Request is the body of the send.
	Request *LettaRequest
	// RequestID is stored by the server with each step. It can be empty.
	RequestID string
	// Room is called with the length of the answer, or -1, before the answer is read. It can wait
	// for memory, and an error fails the send. It can be nil.
	Room func(ctx context.Context, length int64) error
	// Reply returns the destination of the turns. It is called just before the answer is read, so
	// that a request that waits for the model holds no memory. That saves 100 MB with 512 sends in
	// flight and 1 MB replies.
	Reply func() *tokenize.Reply
}

func (o *SendOptions) target() target {
	if o.ConversationID != "" {
		return at("/v1/conversations/{}/messages", o.ConversationID)
	}
	return at("/v1/agents/{}/messages", o.AgentID)
}

// SendWith is [Client.Send] for many concurrent sends. It takes memory only when the answer
// begins.
func (c *Client) SendWith(ctx context.Context, o SendOptions) (answer *LettaResponse, err error) {
	to := o.target()
	if o.ConversationID != "" && o.Request.Streaming == nil {
		copied := *o.Request
		copied.Streaming = new(false)
		o.Request = &copied
	}
	if to.err != nil {
		return nil, fmt.Errorf("send: %w", to.err)
	}
	text, err := Marshal(o.Request)
	if err != nil {
		return nil, fmt.Errorf("send: encode: %w", err)
	}
	r := &request{op: "send", method: http.MethodPost, target: to, id: o.RequestID, body: text, only200: true}
	err = c.exchange(ctx, r, c.cfg.SendTimeout, errSendTimeout, func(ctx context.Context, resp *http.Response, body *watchedBody) (undecoded, err error) {
		body.pause() // until there is room
		if err := checkLength(resp, c.cfg.MaxReplyBytes); err != nil {
			return nil, err
		}
		if o.Room != nil {
			if err := o.Room(ctx, resp.ContentLength); err != nil {
				return nil, err
			}
		}
		reply, err := c.read(ctx, resp.ContentLength, body, o.Reply)
		if err != nil {
			return nil, err
		}
		answer, err = readWith[LettaResponse](newValidScanner(string(reply.Rest))) // the decoder rejects invalid UTF-8
		if err != nil {
			return &classed{&tokenize.DecodeError{Err: err}, err}, nil // another rollout would not decode better
		}
		return nil, nil
	})
	return answer, err
}

// chunkedBytes is the assumed size of a reply of unknown length.
const chunkedBytes = 1 << 20

// read decodes an answer of length bytes (-1: unknown) once there is room for it within ReadBytes.
func (c *Client) read(ctx context.Context, length int64, body *watchedBody, arena func() *tokenize.Reply) (*tokenize.Reply, error) {
	size := length
	if size < 0 {
		size = chunkedBytes
	}
	size = min(size, c.cfg.ReadBytes) // a larger reply is read alone
	if err := c.reading.Acquire(ctx, size); err != nil {
		return nil, err
	}
	defer c.reading.Release(size)
	in := &unsizedBody{ctx: ctx, from: body, turn: c.unsized, free: chunkedBytes}
	defer in.done()
	if length >= 0 {
		in.free = length
	}
	reply := arena()
	decoder := c.decoder()
	defer c.decoders.Put(decoder)
	// Decode reads to the end of the body, so the connection can be reused.
	return reply, decoder.Decode(in, reply)
}

func (c *Client) decoder() *tokenize.Decoder {
	if d, ok := c.decoders.Get().(*tokenize.Decoder); ok {
		return d
	}
	return tokenize.NewDecoder(c.cfg.Decoder)
}

// DecodeTurns decodes a complete answer in memory.
func (c *Client) DecodeTurns(body []byte, arena *tokenize.Reply) error {
	d := c.decoder()
	defer c.decoders.Put(d)
	return d.DecodeBytes(body, arena)
}
