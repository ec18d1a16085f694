// Package leftovers removes agents of a run that are no longer used. During the run it removes
// agents of earlier processes, and at the end of a stopped run it removes the agents that the stop
// left behind. It keeps agents that the next process can reattach to.
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
	"github.com/rollout-rl/rollout/collector/wait"
	"github.com/rollout-rl/rollout/sink"
)

// Agents finds the unused agents of a run on its servers. A dead process created them for attempts
// that will not be reattached. Its methods are safe for concurrent use.
type Agents struct {
	RunID   string
	Clients []*letta.Client // clients of the servers
	Keep    bool            // agents are kept, so none is removed
	// Say prints important messages, and Note prints informational messages.
	Say, Note func(format string, args ...any)

	// last returns the number of the last attempt at a sample by earlier processes.
	last func(key string) int

	mu sync.Mutex
	// open has the attempts of earlier processes that can be reattached, by sample key.
	open map[string]int
}

// Find loads the attempts of earlier processes from the journal and the dataset. It returns how
// many can be reattached.
func (l *Agents) Find(j *journal.Journal, held *sink.Ledger) (open int) {
	l.last = func(key string) int { return j.Left(key).Attempts }
	l.open = map[string]int{}
	for key, a := range j.OpenAttempts(held) {
		l.open[key] = a.N
	}
	return len(l.open)
}

// Finished records the end of an attempt. An attempt that failed to reattach stays open, because
// its server can have been unavailable, or the run stopped. It does not stay open if its agent is
// gone.
func (l *Agents) Finished(a collector.Attempt, err error) {
	if a.Kind == collector.KindReattach && err != nil && !errors.Is(err, collector.ErrGone) {
		return
	}
	l.Done(a.Key)
}

// Done records that the dataset contains a sample. None of the sample's attempts will be
// reattached.
func (l *Agents) Done(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, key)
}

// waiting reports whether the agent's attempt can still be reattached.
func (l *Agents) waiting(a *letta.AgentState) bool {
	key, n := agent.AttemptOf(a)
	l.mu.Lock()
	defer l.mu.Unlock()
	open, ok := l.open[key]
	return ok && (n == 0 || n == open)
}

// living reports whether the agent can be in use, by an attempt of this process or by an attempt
// that can be reattached. It returns true if the agent does not name its attempt.
func (l *Agents) living(a *letta.AgentState) bool {
	key, n := agent.AttemptOf(a)
	return n == 0 || n > l.last(key) || l.waiting(a)
}

// Clear removes the agents that earlier processes left on the servers, while the run collects. It
// calls removed for each server with the number of removed agents and the error.
func (l *Agents) Clear(ctx context.Context, removed func(endpoint string, n int, err error)) {
	if l.Keep {
		return
	}
	for _, client := range l.Clients {
		n, err := agent.Clean(ctx, client, l.RunID, l.living)
		if ctx.Err() != nil {
			return // Sweep runs at the end
		}
		removed(client.BaseURL(), n, err)
	}
}

// Bounds of Sweep: its total time, and the time that a server can take to finish an abandoned
// create request.
const (
	sweepTimeout = 30 * time.Second
	sweepPause   = 500 * time.Millisecond
)

// Sweep removes the agents that a stop left behind: agents that could not be deleted, and agents
// whose create request was abandoned before the server answered. It keeps agents of attempts that
// the next process can reattach to. It skips mute servers, which did not answer such requests
// during the run. If one server fails, Sweep continues with the others. left is the known number of
// remaining agents. Sweep returns how many remain.
func (l *Agents) Sweep(ctx context.Context, left int, mute func(endpoint string) bool) int {
	if l.Keep {
		return left
	}
	var clients []*letta.Client
	for _, client := range l.Clients {
		if mute(client.BaseURL()) {
			l.Say("agents remain on %s: it does not answer delete requests", client.BaseURL())
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
			wait.For(ctx, sweepPause)
		}
		for i, client := range clients {
			if failed[i] {
				continue
			}
			n, err := agent.Clean(ctx, client, l.RunID, l.waiting)
			removed += n
			if failed[i] = err != nil; failed[i] {
				l.Say("agents may remain on %s: %v", client.BaseURL(), err)
			}
		}
	}
	if removed > 0 {
		l.Note("removed %d leftover agents", removed)
	}
	if len(clients) < len(l.Clients) || slices.Contains(failed, true) {
		return max(0, left-removed)
	}
	return 0
}
