package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
)

// Reattach finds the agent of an attempt whose process died: by its id where that
// is known, else by its tags and the attempt in its metadata. The other agents of the
// key are those of attempts that are dead for longer; they are deleted, unless agents
// are kept.
//
// Run of the Agent that it returns waits for the server runs of the agent, takes
// what they made from the server's memory of them, and goes on
// with the task from there. An agent to which nothing was sent starts from the first
// message. Where the server does not remember every token, its memory contradicts
// itself, or it refuses to show it, the error wraps collector.ErrGone; where the run ended
// because of what the model wrote, it is the failure that the send would have had.
func (b *Backend) Reattach(ctx context.Context, a collector.Attempt, left collector.OpenAttempt) (collector.Agent, error) {
	g, err := b.reattach(ctx, a, left)
	if err != nil {
		return nil, Translate(err)
	}
	return g, nil
}

func (b *Backend) reattach(ctx context.Context, a collector.Attempt, left collector.OpenAttempt) (*agent, error) {
	cfg, err := b.cfg.overridden(a.Task.Agent)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", collector.ErrRejected, err)
	}
	version, err := b.client.Version(ctx)
	if err != nil {
		return nil, err
	}
	id, err := b.findAgent(ctx, cfg, a, left)
	if err != nil {
		return nil, err
	}
	state, err := b.client.Agent(ctx, id)
	switch {
	case letta.IsNotFound(err):
		return nil, gone("agent %s was deleted", id)
	case err != nil:
		return nil, err
	}
	g := &agent{
		backend: b, client: b.client, cfg: cfg, attempt: a, state: state, version: version,
		taken: true, left: left, known: map[string]bool{},
	}
	for _, run := range left.ServerRuns {
		g.known[run] = true
	}
	if err := g.missing(g.prepareAgain(ctx)); err != nil {
		if !errors.Is(err, collector.ErrGone) || cfg.Keep {
			return nil, err // to be tried again, or to be looked at
		}
		return nil, b.abandon(ctx, id, err)
	}
	return g, nil
}

// findAgent returns the id of the attempt's agent and deletes the other agents of
// the key.
func (b *Backend) findAgent(ctx context.Context, cfg Config, a collector.Attempt, left collector.OpenAttempt) (string, error) {
	tags := []string{TagRun(a.RunID), TagKey(a.Key)}
	const page = 100
	found, err := b.client.Agents(ctx, tags, "", page)
	if err != nil {
		return "", err
	}
	// A server that takes one tag for enough lists the agents of other samples too.
	found = slices.DeleteFunc(found, func(s letta.AgentState) bool { return !hasAll(s.Tags, tags) })
	id := left.AgentID
	for i := range found {
		if id == "" && attemptOf(found[i].Metadata) == left.N {
			id = found[i].ID
		}
	}
	for i := range found {
		other := &found[i]
		if other.ID == id || cfg.Keep {
			continue
		}
		if err := b.client.DeleteAgent(ctx, other.ID); err != nil {
			return "", fmt.Errorf("delete agent %s of an earlier attempt: %w", other.ID, err)
		}
	}
	if id == "" {
		return "", gone("the server has no agent of attempt %d", left.N)
	}
	return id, nil
}

func hasAll(tags, want []string) bool {
	return !slices.ContainsFunc(want, func(t string) bool { return !slices.Contains(tags, t) })
}

// prepareAgain does what prepare does, for an agent that may have been used: what
// prepare did already is found and not done again.
func (g *agent) prepareAgain(ctx context.Context) error {
	runs, err := g.serverRuns(ctx)
	if err != nil {
		return err
	}
	for _, id := range g.left.ServerRuns {
		if !slices.ContainsFunc(runs, func(r letta.Run) bool { return r.ID == id }) {
			return gone("server run %s was deleted", id)
		}
	}
	if len(runs) == 0 {
		// Nothing was sent. Where the process died between making the agent and
		// preparing it, the rest is done now.
		if err := g.findConversation(ctx); err != nil {
			return err
		}
		return g.prepare(ctx)
	}
	if err := g.state.CheckTurns(); err != nil {
		return gone("agent %s: %w", g.state.ID, err)
	}
	if on := g.state.LLMConfig.EnableReasoner; g.cfg.KeepReasoning && (on == nil || !*on) {
		return gone("agent %s drops the text before tool calls", g.state.ID)
	}
	if err := g.findConversation(ctx); err != nil {
		return err
	}
	if g.cfg.Conversation && g.conversation == nil {
		return gone("the conversation of agent %s was deleted", g.state.ID)
	}
	g.queue = runs
	return g.gather(ctx)
}

// findConversation finds the conversation that the attempt made, if it did.
func (g *agent) findConversation(ctx context.Context) error {
	if !g.cfg.Conversation {
		return nil
	}
	list, err := g.client.Conversations(ctx, g.state.ID)
	if err != nil {
		return err
	}
	if len(list) > 0 {
		g.conversation = &list[0]
	}
	return nil
}

// serverRuns are the server runs of the agent, oldest first. One agent is one
// attempt, so all of them are the attempt's own.
func (g *agent) serverRuns(ctx context.Context) ([]letta.Run, error) {
	const most = 1000
	runs, err := g.client.Runs(ctx, letta.RunsQuery{AgentID: g.state.ID, Ascending: true, Limit: most})
	if err != nil {
		return nil, err
	}
	return runs, nil
}

// missing is err, as one that wraps collector.ErrGone where an agent that was taken over
// is not there any more, or something of it: another attempt may go well.
func (g *agent) missing(err error) error {
	if !g.taken || !letta.IsNotFound(err) || errors.Is(err, collector.ErrGone) {
		return err
	}
	return gone("agent %s: %w", g.state.ID, err)
}
