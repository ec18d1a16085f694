// Package leftovers removes the agents of a run that nobody works with any more: those of
// earlier processes while the run goes on, and those that a stop left at its end. Agents
// that the next process may take over stay.
package leftovers

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

// Agents knows which agents of the run on the servers belong to nobody: made by a
// process that is dead, for an attempt that nobody takes over. Its methods are called
// from many goroutines.
type Agents struct {
	RunID   string
	Clients []*letta.Client // of the servers
	Keep    bool            // nothing is removed
	// Say and Note tell people: what they need to know, and what they may like to.
	Say, Note func(format string, args ...any)

	// last is the number of the last attempt at a sample that an earlier process began.
	last func(key string) int

	mu sync.Mutex
	// open holds the attempts of earlier processes that may be taken over, by key.
	open map[string]int
}

// Find reads what the journal and the dataset of the run know of earlier processes, and
// returns how many attempts may be taken over.
func (l *Agents) Find(j *journal.Journal, held *sink.Ledger) (open int) {
	l.last = func(key string) int { return j.Left(key).Attempts }
	l.open = map[string]int{}
	for key, a := range j.OpenAttempts(held) {
		l.open[key] = a.N
	}
	return len(l.open)
}

// Finished notes an attempt that ended. One that could not be taken over, because its
// server did not answer or the run was being stopped, may still be.
func (l *Agents) Finished(a collector.Attempt, err error) {
	if a.Kind == collector.KindReattach && err != nil && !errors.Is(err, collector.ErrGone) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, a.Key)
}

// Done notes a sample that the dataset has: nobody takes an attempt at it over, also if none
// was made in this process.
func (l *Agents) Done(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, key)
}

// waiting reports whether the agent's attempt may still be taken over.
func (l *Agents) waiting(a *letta.AgentState) bool {
	key, n := agent.AttemptOf(a)
	l.mu.Lock()
	defer l.mu.Unlock()
	open, ok := l.open[key]
	return ok && (n == 0 || n == open)
}

// living reports whether the agent may be at work: for an attempt of this process, or
// for one that may be taken over. An agent that does not say its attempt may be both.
func (l *Agents) living(a *letta.AgentState) bool {
	key, n := agent.AttemptOf(a)
	return n == 0 || n > l.last(key) || l.waiting(a)
}

// Clear removes what earlier processes of the run left on the servers, while the run goes
// on. removed is told of each server how many went, and the error that kept others.
func (l *Agents) Clear(ctx context.Context, removed func(endpoint string, n int, err error)) {
	if l.Keep {
		return
	}
	for _, client := range l.Clients {
		n, err := agent.Clean(ctx, client, l.RunID, l.living)
		if ctx.Err() != nil {
			return // the end of the run looks again
		}
		removed(client.BaseURL(), n, err)
	}
}

// The bounds of Sweep: how long it may take, and how long a server may need for a
// create that was given up in the middle.
const (
	sweepTimeout = 30 * time.Second
	sweepPause   = 500 * time.Millisecond
)

// Sweep removes the agents that a stop left: those that could not be removed, and
// those whose create was given up before the server had named them. Agents of attempts
// that the next process may take over stay. A server that is mute, that is, did not
// answer such requests in the run, is not asked once more; one that fails keeps no other
// from being swept. left is how many are known to be there; it returns how many still
// are.
func (l *Agents) Sweep(ctx context.Context, left int, mute func(endpoint string) bool) int {
	if l.Keep {
		return left
	}
	var clients []*letta.Client
	for _, client := range l.Clients {
		if mute(client.BaseURL()) {
			l.Say("agents are left on %s: it does not answer requests to delete them", client.BaseURL())
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
			n, err := agent.Clean(ctx, client, l.RunID, l.waiting)
			removed += n
			if failed[i] = err != nil; failed[i] {
				l.Say("agents may be left on %s: %v", client.BaseURL(), err)
			}
		}
	}
	if removed > 0 {
		l.Note("removed %d agents that were left on the server", removed)
	}
	if len(clients) < len(l.Clients) || slices.Contains(failed, true) {
		return max(0, left-removed)
	}
	return 0
}
