package harness

import (
	"context"
	"errors"
	"fmt"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/session/store"
	"github.com/rollout-rl/rollout/tokenize"
)

// A Reader is a [collector.Backend] that reads the sessions of other programs. Its tasks have a
// Recorded with the id of a sealed session. It changes and removes nothing.
type Reader struct {
	source store.Source
	build  session.Config
}

// NewReader returns a Reader for the sessions of the source. build configures how a session becomes the
// calls of a sample.
func NewReader(source store.Source, build session.Config) *Reader { return &Reader{source, build} }

// Open returns an agent that reads the session of the task.
func (r *Reader) Open(_ context.Context, a collector.Attempt) (collector.Agent, error) {
	return &readAgent{reader: r, id: a.Task.Recorded.Run}, nil
}

// A readAgent reads one session.
type readAgent struct {
	reader *Reader
	id     string
	calls  []tokenize.Call
}

func (g *readAgent) ID() string { return g.id }

func (g *readAgent) Run(ctx context.Context) (*collector.Reply, error) {
	record, err := g.reader.source.Read(ctx, g.id)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, store.ErrUnknown):
		return nil, fmt.Errorf("%w: session %s was removed before it could be read", collector.ErrNoCalls, g.id)
	case errors.Is(err, store.ErrDamaged):
		return nil, fmt.Errorf("%w: %w", collector.ErrNoTurns, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", collector.ErrConnection, err)
	}
	rollout, err := session.Build(record, g.reader.build)
	secrets := newRedactor(&Config{}) // the keys of sessions
	reply := replyOf(record, rollout, record.End.At.Sub(record.Head.Began), secrets)
	reply.Started, reply.Reward = record.Head.Began, record.End.Reward
	if rollout != nil {
		g.calls, reply.Output = rollout.Calls, rollout.Main.Text
	}
	if text := record.End.FinalText; text != nil {
		reply.Output = *text
	}
	return reply, sessionError(err, fmt.Sprintf("session %s has %d requests", g.id, len(record.Calls)))
}

func (g *readAgent) Prompts(context.Context, *collector.Reply) ([]tokenize.Call, error) {
	return g.calls, nil
}

func (g *readAgent) Close(context.Context) error {
	g.calls = nil
	return nil
}
