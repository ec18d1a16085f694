package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/journal"
	"github.com/rollout-rl/rollout/collector/letta"
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

func newLeftovers(j *journal.Journal, held ledger) *leftovers {
	l := &leftovers{last: func(key string) int { return j.Left(key).Attempts }, open: map[string]int{}}
	j.OpenAttempts(func(key string, open collector.OpenAttempt) bool {
		if e := held.find(key); e == nil || e.class() != collector.ClassNone {
			l.open[key] = open.N
		}
		return true
	})
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
	key, n := letta.AttemptOf(a)
	l.mu.Lock()
	defer l.mu.Unlock()
	open, ok := l.open[key]
	return ok && (n == 0 || n == open)
}

// living reports whether the agent may be at work: for an attempt of this process, or
// for one that may be taken over. An agent that does not say its attempt may be both.
func (l *leftovers) living(a *letta.AgentState) bool {
	key, n := letta.AttemptOf(a)
	return n == 0 || n > l.last(key) || l.waiting(a)
}

// clearLeftovers removes what earlier processes of the run left on the servers, while
// the run goes on.
func (c *collection) clearLeftovers(ctx context.Context) {
	if len(c.info.Invocations) == 1 || c.config.Agent.Keep {
		return
	}
	for _, client := range c.clients {
		n, err := client.CleanRun(ctx, c.info.ID, c.leftovers.living)
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
func (c *collection) progress(p letta.Progress) {
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
// that the next process may take over stay. left is how
// many are known to be there; it returns how many still are.
func (c *collection) sweep(ctx context.Context, left int) int {
	if c.config.Agent.Keep {
		return left
	}
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
		for _, client := range c.clients {
			n, err := client.CleanRun(ctx, c.info.ID, c.leftovers.waiting)
			removed += n
			if err != nil {
				c.display.say("agents may be left on %s: %v", client.BaseURL(), err)
				return max(0, left-removed)
			}
		}
	}
	if removed > 0 {
		c.display.note("removed %d agents that were left on the server", removed)
	}
	return 0
}
