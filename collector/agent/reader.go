package agent

import (
	"context"
	"fmt"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/tokenize"
)

// A Reader reads server runs that other programs drove, from what one server keeps of them.
// It implements [collector.Backend] for tasks that are Recorded, with
// [collector.Reattacher], [collector.Pinger] and [collector.Checker]. It makes no agent, sends
// nothing and deletes nothing: each of its requests is a GET.
//
// What another attempt would not get either fails with the class of a sample that failed for
// good: a *tokenize.AlignError whose Reason says why the record gives no tokens, or
// [collector.ErrAgent] where the server run itself went wrong.
type Reader struct{ b *Backend }

var (
	_ collector.Backend    = (*Reader)(nil)
	_ collector.Reattacher = (*Reader)(nil)
	_ collector.Pinger     = (*Reader)(nil)
	_ collector.Checker    = (*Reader)(nil)
)

// A ReaderConfig says how server runs are read.
type ReaderConfig struct {
	// Prompter finds the prompts of a reply. Nil: Agent.Prompts fails.
	Prompter Prompter
	// Messages keeps the conversation as JSON in the Reply.
	Messages bool
}

// NewReader returns a Reader of what the server of the client keeps.
func NewReader(client *letta.Client, cfg ReaderConfig) *Reader {
	full := Config{Prompter: cfg.Prompter, Messages: cfg.Messages, Keep: true}.withDefaults()
	return &Reader{&Backend{client: client, cfg: full, room: newReplyRoom(full.MaxHeldBytes)}}
}

// Client returns the client that the reader uses.
func (r *Reader) Client() *letta.Client { return r.b.client }

// Open finds the server run of the task. Run of the Agent that it returns reads it, and Close
// frees the memory and leaves everything on the server.
func (r *Reader) Open(ctx context.Context, a collector.Attempt) (collector.Agent, error) {
	g, err := r.open(ctx, a)
	if err != nil {
		return nil, Translate(err)
	}
	return g, nil
}

func (r *Reader) open(ctx context.Context, a collector.Attempt) (collector.Agent, error) {
	if a.Task.Recorded == nil {
		return nil, fmt.Errorf("%w: task %s names no server run to be read", collector.ErrRejected, a.Task.ID)
	}
	version, err := r.b.client.Version(ctx)
	if err != nil {
		return nil, err
	}
	g := &recorded{agent: &agent{backend: r.b, client: r.b.client, cfg: r.b.cfg, attempt: a, version: version}}
	if g.run, err = g.client.Run(ctx, a.Task.Recorded.Run); err != nil {
		return nil, g.deleted(err)
	}
	return g, nil
}

// Reattach is Open: an attempt that a dead process began has left nothing.
func (r *Reader) Reattach(ctx context.Context, a collector.Attempt, _ collector.OpenAttempt) (collector.Agent, error) {
	return r.Open(ctx, a)
}

// Ping asks the server for its health, which costs it nothing.
func (r *Reader) Ping(ctx context.Context) error { return r.b.Ping(ctx) }

// Check lists one server run, for which the server must reach its database.
func (r *Reader) Check(ctx context.Context, _ string) error {
	_, err := r.b.client.Runs(ctx, letta.RunsQuery{Limit: 1})
	return Translate(err)
}

// deleted returns err as that of a server run that is gone with its agent, where it says that.
func (g *recorded) deleted(err error) error {
	if !letta.IsNotFound(err) {
		return err
	}
	return final(goneBy(tokenize.ReasonDeleted, "server run %s was deleted, or its agent was, before it was read", g.attempt.Task.Recorded.Run))
}
