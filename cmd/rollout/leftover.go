package main

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/journal"
	"github.com/rollout-rl/rollout/collector/letta"
)

// leftovers knows which agents of the run on the servers belong to nobody: made by a
// process that is dead, for an attempt that nobody takes over. Its methods are called
// from many goroutines.
type leftovers struct {
	mu sync.Mutex
	// open holds the keys of attempts of earlier processes that may be taken over.
	open map[string]struct{}
	// begun holds the keys of attempts of this process, for as long as agents are
	// looked for while it makes some; nil: not any more.
	begun map[string]struct{}
}

func newLeftovers(j *journal.Journal, held ledger) *leftovers {
	l := &leftovers{open: map[string]struct{}{}, begun: map[string]struct{}{}}
	j.OpenAttempts(func(key string, _ collector.OpenAttempt) bool {
		if e, ok := held[key]; !ok || e.failed != collector.ClassNone {
			l.open[key] = struct{}{}
		}
		return true
	})
	return l
}

// started notes an attempt before its agent is made.
func (l *leftovers) started(a collector.Attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begun != nil {
		l.begun[a.Key] = struct{}{}
	}
}

// finished notes an attempt after its agent was removed.
func (l *leftovers) finished(a collector.Attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, a.Key)
}

// foreign reports whether the agent belongs to nobody.
func (l *leftovers) foreign(a *letta.AgentState) bool {
	key := ""
	for _, tag := range a.Tags {
		if k, ok := strings.CutPrefix(tag, letta.TagKey("")); ok {
			key = k
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, open := l.open[key]
	_, begun := l.begun[key]
	return !open && !begun
}

// settled ends the noting of attempts.
func (l *leftovers) settled() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun = nil
}

// clear removes the agents of the run that belong to nobody from a server, and
// returns how many.
func (l *leftovers) clear(ctx context.Context, client *letta.Client, runID string) (removed int, err error) {
	err = client.EachAgentOf(ctx, runID, func(a *letta.AgentState) error {
		if ctx.Err() != nil || !l.foreign(a) {
			return ctx.Err()
		}
		if err := client.DeleteAgent(ctx, a.ID); err != nil {
			return fmt.Errorf("agent %s: %w", a.ID, err)
		}
		removed++
		return nil
	})
	return removed, err
}

// clearLeftovers removes what earlier processes of the run left on the servers, while
// the run goes on.
func (c *collection) clearLeftovers(ctx context.Context) {
	defer c.leftovers.settled()
	if len(c.info.Invocations) == 1 || c.config.Agent.Keep {
		return
	}
	for _, client := range c.clients {
		n, err := c.leftovers.clear(ctx, client, c.info.ID)
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
