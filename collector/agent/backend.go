package agent

import (
	"context"
	"sync"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

// A Backend makes the agents of a run on one server. It implements [collector.Backend],
// [collector.Reattacher], [collector.Pinger] and [collector.Checker].
type Backend struct {
	client *letta.Client
	cfg    Config
	// room bounds the bytes of the replies that agents hold.
	room *replyRoom
	// engines are the engines behind the server, as traces show them.
	engines record.Engines
	// arenas are kept between two attempts.
	arenas sync.Pool
}

var (
	_ collector.Backend    = (*Backend)(nil)
	_ collector.Reattacher = (*Backend)(nil)
	_ collector.Pinger     = (*Backend)(nil)
	_ collector.Checker    = (*Backend)(nil)
)

// NewBackend returns a backend that makes agents through client.
func NewBackend(client *letta.Client, cfg Config) (*Backend, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	return &Backend{client: client, cfg: cfg, room: newReplyRoom(cfg.MaxHeldBytes)}, nil
}

// Client returns the client that the backend uses.
func (b *Backend) Client() *letta.Client { return b.client }

// Open makes an agent for the attempt: from the configuration with the task's overrides,
// or by importing the agent file. The agent has the tags [TagAll], [TagRun] and [TagKey],
// and its metadata says, under rollout, which attempt it is.
//
// An agent that will give no turns is deleted again and refused with a
// [letta.NoTurnsError]. What fails halfway leaves no agent behind, unless the answer that
// would have named it was lost; [Clean] finds those by their tags.
func (b *Backend) Open(ctx context.Context, a collector.Attempt) (collector.Agent, error) {
	g, err := b.open(ctx, a)
	if err != nil {
		return nil, Translate(err)
	}
	return g, nil
}

// Reattach finds the agent of an attempt whose process died: by its id where that is
// known, else by its tags and the attempt in its metadata. The other agents of the key
// belong to attempts that ended earlier still; Reattach deletes them, unless agents are
// kept.
//
// Run of the Agent that it returns waits for the server runs of the agent, takes their
// answers from the server's record, and continues the task from there. An agent to which
// nothing was sent starts from the first message. Where the record lacks a token or
// contradicts itself, or the server refuses to show it, the error wraps
// [collector.ErrGone]; where the server run ended because of what the model wrote, the
// error is the one that the send would have had.
func (b *Backend) Reattach(ctx context.Context, a collector.Attempt, left collector.OpenAttempt) (collector.Agent, error) {
	g, err := b.reattach(ctx, a, left)
	if err != nil {
		return nil, Translate(err)
	}
	return g, nil
}

// maxPooledBytes keeps the arena of a rare huge reply from staying for ever.
const maxPooledBytes = 16 << 20

// arena returns memory for one reply.
func (b *Backend) arena() *tokenize.Reply {
	if r, ok := b.arenas.Get().(*tokenize.Reply); ok {
		return r
	}
	return new(tokenize.Reply)
}

// recycle takes the memory of a reply back.
func (b *Backend) recycle(r *tokenize.Reply) {
	if r.Bytes > maxPooledBytes {
		return
	}
	r.Reset()
	b.arenas.Put(r)
}
