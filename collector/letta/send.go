package letta

import (
	"context"
	"fmt"
	"net/http"

	"github.com/rollout-rl/rollout/tokenize"
)

// Send sends messages to the agent and waits for the whole answer, which takes as long as all model
// calls together. Send resets reply and decodes the turns into it. Send returns the rest of the
// answer without logprobs. The server stores requestID with each step. requestID can be empty.
//
// No layer ever repeats a send. If the connection fails, the server might continue to run the
// agent.
func (c *Client) Send(ctx context.Context, agentID string, req *LettaRequest, requestID string, reply *tokenize.Reply) (*LettaResponse, error) {
	reply.Reset()
	return c.SendWith(ctx, SendOptions{
		AgentID: agentID, Request: req, RequestID: requestID, Reply: func() *tokenize.Reply { return reply },
	})
}

// SendOptions are the parameters of SendWith.
type SendOptions struct {
	// AgentID is the id of the agent that receives the send. If ConversationID is set, the send
	// goes to this conversation, without streaming unless Request.Streaming is set. The server then
	// ignores the token flags of the request and uses the flags stored with the agent.
	AgentID, ConversationID string
	// Request is the body of the send.
	Request *LettaRequest
	// RequestID is an id that the server stores with each step. It can be empty.
	RequestID string
	// Room, if not nil, is called before the answer is read. Its argument is the length of the
	// answer, or -1 if unknown. Room can wait until memory is free. If it returns an error, the
	// send fails.
	Room func(ctx context.Context, length int64) error
	// Reply returns the destination of the turns. It is called just before the answer is read, so
	// that a request holds no memory while the model works. This saves 100 MB with 512 sends in
	// flight and 1 MB replies.
	Reply func() *tokenize.Reply
}

func (o *SendOptions) target() target {
	if o.ConversationID != "" {
		return at("/v1/conversations/{}/messages", o.ConversationID)
	}
	return at("/v1/agents/{}/messages", o.AgentID)
}

// SendWith is like [Client.Send], but is meant for many concurrent sends. It allocates memory for
// the reply only when the answer arrives.
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
		body.pause() // the timer stops until there is room
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
		answer, err = readWith[LettaResponse](newValidScanner(string(reply.Rest))) // the decoder has already rejected invalid UTF-8
		if err != nil {
			return &classed{&tokenize.DecodeError{Err: err}, err}, nil // use a DecodeError, because a retry would not help
		}
		return nil, nil
	})
	return answer, err
}

// chunkedBytes is the assumed size of a reply of unknown length.
const chunkedBytes = 1 << 20

// read waits until there is room for the answer within ReadBytes, and then decodes the answer. The
// parameter length is the size of the answer in bytes, or -1 if unknown.
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
