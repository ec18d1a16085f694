package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/journal"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/sink"
)

// leftovers knows which agents of the run on the servers belong to nobody: made by a
// process that is dead, for an attempt that nobody takes over. Its methods are called
// from many goroutines.
type leftovers struct {
	// last is the number of the last attempt at a sample that an earlier process began.
	last func(key string) int

	mu sync.Mutex
	// open holds the attempts of earlier processes that may be taken over, by key.
	open map[string]int
}

func newLeftovers(j *journal.Journal, held *sink.Ledger) *leftovers {
	l := &leftovers{last: func(key string) int { return j.Left(key).Attempts }, open: map[string]int{}}
	for key, open := range j.OpenAttempts(held) {
		l.open[key] = open.N
	}
	return l
}

// finished notes an attempt that ended. One that could not be taken over, because its
// server did not answer or the run was being stopped, may still be.
func (l *leftovers) finished(a collector.Attempt, err error) {
	if a.Kind == collector.KindReattach && err != nil && !errors.Is(err, collector.ErrGone) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, a.Key)
}

// waiting reports whether the agent's attempt may still be taken over.
func (l *leftovers) waiting(a *letta.AgentState) bool {
	key, n := agent.AttemptOf(a)
	l.mu.Lock()
	defer l.mu.Unlock()
	open, ok := l.open[key]
	return ok && (n == 0 || n == open)
}

// living reports whether the agent may be at work: for an attempt of this process, or
// for one that may be taken over. An agent that does not say its attempt may be both.
func (l *leftovers) living(a *letta.AgentState) bool {
	key, n := agent.AttemptOf(a)
	return n == 0 || n > l.last(key) || l.waiting(a)
}

// clearLeftovers removes what earlier processes of the run left on the servers, while
// the run goes on.
func (c *collection) clearLeftovers(ctx context.Context) {
	if len(c.info.Invocations) == 1 || c.config.Agent.Keep {
		return
	}
	for _, client := range c.clients {
		n, err := agent.CleanRun(ctx, client, c.info.ID, c.leftovers.living)
		if ctx.Err() != nil {
			return // the end of the run looks again
		}
		c.log.Info("leftover agents removed", "endpoint", client.BaseURL(), "agents", n)
		if n > 0 {
			c.display.note("removed %d agents that an earlier process left on %s", n, client.BaseURL())
		}
		if err != nil {
			c.log.Warn("leftover agents not removed", append([]any{"endpoint", client.BaseURL()}, errorAttrs(err)...)...)
			c.display.say("agents of an earlier process may be left on %s: %v", client.BaseURL(), err)
		}
	}
}

// progress logs a send of which nothing is heard, and what its steps say.
func (c *collection) progress(p agent.Progress) {
	c.log.Info("silent send", "sample_key", p.Key, "attempt", p.Attempt, "agent_id", p.AgentID, "server_run_id", p.RunID,
		"steps", p.Steps, "silent_s", p.Silent.Seconds())
}

// The bounds of sweep: how long it may take, and how long a server may need for a
// create that was given up in the middle.
const (
	sweepTimeout = 30 * time.Second
	sweepPause   = 500 * time.Millisecond
)

// sweep removes the agents that a stop left: those that could not be removed, and
// those whose create was given up before the server had named them. Agents of attempts
// that the next process may take over stay. A server that is mute, that is, did not
// answer such requests in the run, is not asked once more; one that fails keeps no other
// from being swept. left is how many are known to be there; it returns how many still
// are.
func (c *collection) sweep(ctx context.Context, left int, mute func(endpoint string) bool) int {
	if c.config.Agent.Keep {
		return left
	}
	var clients []*letta.Client
	for _, client := range c.clients {
		if mute(client.BaseURL()) {
			c.display.say("agents are left on %s: it does not answer their removal", client.BaseURL())
			continue
		}
		clients = append(clients, client)
	}
	failed := make([]bool, len(clients))
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	removed := 0
	for round := range 2 {
		if round > 0 {
			select {
			case <-time.After(sweepPause):
			case <-ctx.Done():
			}
		}
		for i, client := range clients {
			if failed[i] {
				continue
			}
			n, err := agent.CleanRun(ctx, client, c.info.ID, c.leftovers.waiting)
			removed += n
			if failed[i] = err != nil; failed[i] {
				c.display.say("agents may be left on %s: %v", client.BaseURL(), err)
			}
		}
	}
	if removed > 0 {
		c.display.note("removed %d agents that were left on the server", removed)
	}
	if len(clients) < len(c.clients) || slices.Contains(failed, true) {
		return max(0, left-removed)
	}
	return 0
}
