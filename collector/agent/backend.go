package agent

import (
	"context"
	"sync"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

// A Backend creates the agents of a run on one server. It implements [collector.Backend],
// [collector.Reattacher], [collector.Pinger] and [collector.Checker].
type Backend struct {
	client *letta.Client
	cfg    Config
	room   *replyLimiter
	// engines records what the traces reveal about the engines behind the server.
	engines record.Engines
	arenas  sync.Pool
}

var (
	_ collector.Backend    = (*Backend)(nil)
	_ collector.Reattacher = (*Backend)(nil)
	_ collector.Pinger     = (*Backend)(nil)
	_ collector.Checker    = (*Backend)(nil)
)

// NewBackend returns a backend that creates agents through client.
func NewBackend(client *letta.Client, cfg Config) (*Backend, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	return &Backend{client: client, cfg: cfg, room: newReplyLimiter(cfg.MaxHeldBytes)}, nil
}

// Client returns the client of the backend.
func (b *Backend) Client() *letta.Client { return b.client }

// Open creates an agent for the attempt from the configuration and the task's overrides, or imports
// the agent file. The agent has the tags [TagAll], [TagRun] and [TagKey], and its metadata
// identifies the attempt under "rollout".
//
// If the agent will return no turns, Open deletes it and returns a [letta.NoTurnsError]. A failed
// Open leaves an agent on the server only if the server's answer was lost or the deletion failed.
// [Clean] finds such agents by their tags.
func (b *Backend) Open(ctx context.Context, a collector.Attempt) (collector.Agent, error) {
	g, err := b.open(ctx, a)
	if err != nil {
		return nil, Translate(err)
	}
	return g, nil
}

// Reattach finds the agent of an attempt whose process died. It uses the agent's id if known, and
// otherwise the agent's tags and metadata. Unless Config.Keep is set, Reattach deletes the other
// agents of the sample, which belong to earlier attempts.
//
// The returned Agent's Run method waits for the agent's server runs, takes the answers from the
// server's record, and then continues the task. If nothing was sent to the agent, Run starts with
// the first message. If the record lacks a token, contradicts itself or cannot be read, the error
// wraps [collector.ErrGone]. If the server run failed because of the model's output, the error is
// the same as for a send.
func (b *Backend) Reattach(ctx context.Context, a collector.Attempt, left collector.OpenAttempt) (collector.Agent, error) {
	g, err := b.reattach(ctx, a, left)
	if err != nil {
		return nil, Translate(err)
	}
	return g, nil
}

// maxPooledBytes is the maximum size of a reply whose arena returns to the pool. It keeps the
// arenas of rare huge replies out of the pool.
const maxPooledBytes = 16 << 20

func (b *Backend) arena() *tokenize.Reply {
	if r, ok := b.arenas.Get().(*tokenize.Reply); ok {
		return r
	}
	return new(tokenize.Reply)
}

func (b *Backend) recycle(r *tokenize.Reply) {
	if r.Bytes > maxPooledBytes {
		return
	}
	r.Reset()
	b.arenas.Put(r)
}
