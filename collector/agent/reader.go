package agent

import (
	"context"
	"fmt"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/tokenize"
)

// A Reader reads server runs that other programs drove, from the records of one server. It
// implements [collector.Backend] for tasks whose field Recorded is set, and also
// [collector.Reattacher], [collector.Pinger] and [collector.Checker]. It makes only GET requests,
// so it creates, sends and deletes nothing.
//
// If another attempt would fail in the same way, the error is final. If the server run itself
// failed, a final error wraps [collector.ErrAgent]. Otherwise it is a *tokenize.AlignError whose
// Reason explains why the record has no tokens.
type Reader struct{ b *Backend }

var (
	_ collector.Backend    = (*Reader)(nil)
	_ collector.Reattacher = (*Reader)(nil)
	_ collector.Pinger     = (*Reader)(nil)
	_ collector.Checker    = (*Reader)(nil)
)

// A ReaderConfig configures a Reader.
type ReaderConfig struct {
	// Prompter finds the prompts of a reply. If it is nil, Agent.Prompts returns an error.
	Prompter Prompter
}

// NewReader returns a Reader for the client's server.
func NewReader(client *letta.Client, cfg ReaderConfig) *Reader {
	full := Config{Prompter: cfg.Prompter, Keep: true}.withDefaults()
	return &Reader{&Backend{client: client, cfg: full, room: newReplyLimiter(full.MaxHeldBytes)}}
}

// Client returns the client of the reader.
func (r *Reader) Client() *letta.Client { return r.b.client }

// Open finds the server run of the task. The returned Agent's Run method reads the server run. Its
// Close method only frees memory.
func (r *Reader) Open(ctx context.Context, a collector.Attempt) (collector.Agent, error) {
	g, err := r.open(ctx, a)
	if err != nil {
		return nil, Translate(err)
	}
	return g, nil
}

func (r *Reader) open(ctx context.Context, a collector.Attempt) (collector.Agent, error) {
	if a.Task.Recorded == nil {
		return nil, fmt.Errorf("%w: task %s has no server run to read", collector.ErrRejected, a.Task.ID)
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

// Reattach calls Open, because a dead process leaves nothing to take over.
func (r *Reader) Reattach(ctx context.Context, a collector.Attempt, _ collector.OpenAttempt) (collector.Agent, error) {
	return r.Open(ctx, a)
}

// Ping sends a cheap request, the server's health check.
func (r *Reader) Ping(ctx context.Context) error { return r.b.Ping(ctx) }

// Check lists one server run. The server must reach its database to answer.
func (r *Reader) Check(ctx context.Context, _ string) error {
	_, err := r.b.client.Runs(ctx, letta.RunsQuery{Limit: 1})
	return Translate(err)
}

// deleted turns a 404 error into the final error for a deleted server run.
func (g *recorded) deleted(err error) error {
	if !letta.IsNotFound(err) {
		return err
	}
	return makeFinal(goneReasonf(tokenize.ReasonDeleted, "server run %s or its agent was deleted before it was read", g.attempt.Task.Recorded.Run))
}
