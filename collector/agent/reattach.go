package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
)

// The earlier type describes what an earlier process did with the agent of an attempt.
type earlier struct {
	// left is the attempt that the journal recorded.
	left collector.OpenAttempt
	// runs are the server runs that are not yet in the reply, oldest first.
	runs []letta.Run
	// first is the record of runs[0]. It is nil until this run has ended and its record has been
	// read.
	first *runRecord
	// resumed is true if this process has also sent to the agent.
	resumed bool
}

func (e *earlier) waiting() bool { return e != nil && len(e.runs) > 0 }

func (e *earlier) sends() {
	if e != nil {
		e.resumed = true
	}
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
	id, err := b.findAgent(ctx, &cfg, a, left)
	if err != nil {
		return nil, err
	}
	state, err := b.client.Agent(ctx, id)
	switch {
	case letta.IsNotFound(err):
		return nil, goneErrorf("agent %s was deleted", id)
	case err != nil:
		return nil, err
	}
	g := &agent{
		backend: b, client: b.client, cfg: cfg, attempt: a, state: state, version: version,
		earlier: &earlier{left: left}, told: map[string]bool{},
	}
	for _, run := range left.ServerRuns {
		g.told[run] = true
	}
	if err := g.missingError(g.prepareAgain(ctx)); err != nil {
		if !errors.Is(err, collector.ErrGone) || cfg.Keep {
			return nil, err // the agent is needed for a retry, or kept for inspection
		}
		return nil, b.deleteUnusable(ctx, id, err)
	}
	return g, nil
}

// findAgent returns the id of the attempt's agent and deletes the other agents of the sample.
func (b *Backend) findAgent(ctx context.Context, cfg *Config, a collector.Attempt, left collector.OpenAttempt) (string, error) {
	tags := []string{TagRun(a.RunID), TagKey(a.Key)}
	const page = 100
	found, err := b.client.Agents(ctx, tags, "", page)
	if err != nil {
		return "", err
	}
	// If a server lists agents that have any of the tags, the list includes agents of other
	// samples.
	found = slices.DeleteFunc(found, func(s letta.AgentState) bool { return !containsAll(s.Tags, tags) })
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
		return "", goneErrorf("the server has no agent of attempt %d", left.N)
	}
	return id, nil
}

func containsAll(tags, want []string) bool {
	return !slices.ContainsFunc(want, func(t string) bool { return !slices.Contains(tags, t) })
}

// prepareAgain prepares an agent that an earlier process might have prepared and used.
func (g *agent) prepareAgain(ctx context.Context) error {
	var runs []letta.Run
	both, within := errgroup.WithContext(ctx)
	both.Go(func() (err error) {
		runs, err = g.serverRuns(within)
		return err
	})
	both.Go(func() (err error) {
		g.conversation, err = g.findConversation(within)
		return err
	})
	if err := both.Wait(); err != nil {
		return err
	}
	for _, id := range g.earlier.left.ServerRuns {
		if !slices.ContainsFunc(runs, func(r letta.Run) bool { return r.ID == id }) {
			return goneErrorf("server run %s was deleted", id)
		}
	}
	if len(runs) == 0 {
		// Nothing was sent. The process might have died before it prepared the agent.
		return g.prepare(ctx)
	}
	if err := g.state.CheckTurns(); err != nil {
		return goneErrorf("agent %s: %w", g.state.ID, err)
	}
	if on := g.state.LLMConfig.EnableReasoner; g.cfg.KeepReasoning && (on == nil || !*on) {
		return goneErrorf("agent %s drops the text before tool calls, although keep_reasoning is set", g.state.ID)
	}
	if g.cfg.Conversation && g.conversation == nil {
		return goneErrorf("the conversation of agent %s was deleted", g.state.ID)
	}
	g.earlier.runs = runs
	system, err := g.systemText(ctx)
	if err != nil {
		return err
	}
	g.begin(system)
	return nil
}

func (g *agent) findConversation(ctx context.Context) (*letta.Conversation, error) {
	if !g.cfg.Conversation {
		return nil, nil
	}
	list, err := g.client.Conversations(ctx, g.state.ID)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return &list[0], nil
}

// missingError returns err wrapped in collector.ErrGone if a part of the agent no longer exists,
// because another attempt can succeed.
func (g *agent) missingError(err error) error {
	if g.earlier == nil || !letta.IsNotFound(err) || errors.Is(err, collector.ErrGone) {
		return err
	}
	return goneErrorf("agent %s: %w", g.state.ID, err)
}
