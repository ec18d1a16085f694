// Package leftovers removes agents that a run no longer uses. During the run, it removes agents
// that earlier processes created. At the end of a stopped run, it also removes the agents that the
// stop left behind. It keeps agents that the next process can reattach to.
package leftovers

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/journal"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/wait"
)

// Agents finds the unused agents of a run on its servers. Such an agent was created by a process
// that has ended, for an attempt that will not be reattached. The methods of Agents are safe for
// concurrent use.
type Agents struct {
	RunID   string
	Clients []*letta.Client
	Keep    bool // true if no agents must be removed, for example because agent.keep is set
	// Say prints an important message. Note prints an informational message.
	Say, Note func(format string, args ...any)

	// last returns the number of the last attempt that earlier processes made for a sample.
	last func(key string) int

	mu sync.Mutex
	// open contains, by sample key, the numbers of the earlier attempts that can be reattached.
	open map[string]int
}

// Find loads the attempts of earlier processes from the journal and the dataset. It returns the
// number of attempts that can be reattached.
func (l *Agents) Find(j *journal.Journal, held journal.Dataset) (open int) {
	l.last = func(key string) int { return j.Left(key).Attempts }
	l.open = map[string]int{}
	for key, a := range j.OpenAttempts(held) {
		l.open[key] = a.N
	}
	return len(l.open)
}

// Finished records the end of an attempt. If reattaching the attempt failed, the attempt stays
// open, because the server might have been unavailable or the run might have been stopped. If the
// agent is gone, the attempt does not stay open.
func (l *Agents) Finished(a collector.Attempt, err error) {
	if a.Kind == collector.KindReattach && err != nil && !errors.Is(err, collector.ErrGone) {
		return
	}
	l.Done(a.Key)
}

// Done records that the dataset contains a sample, so none of the sample's attempts will be
// reattached.
func (l *Agents) Done(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, key)
}

// Waiting reports whether an attempt of an earlier process at the sample can still be reattached.
func (l *Agents) Waiting(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.open[key]
	return ok
}

// waiting reports whether the attempt of the agent can still be reattached.
func (l *Agents) waiting(a *letta.AgentState) bool {
	key, n := agent.AttemptOf(a)
	l.mu.Lock()
	defer l.mu.Unlock()
	open, ok := l.open[key]
	return ok && (n == 0 || n == open)
}

// living reports whether the agent might be in use, either by an attempt of this process or by an
// attempt that can be reattached. If the agent does not name its attempt, living returns true.
func (l *Agents) living(a *letta.AgentState) bool {
	key, n := agent.AttemptOf(a)
	return n == 0 || n > l.last(key) || l.waiting(a)
}

// Clear removes the agents that earlier processes left on the servers. It can be called while the
// run is collecting. For each server, it calls the callback with the number of removed agents and
// any error.
func (l *Agents) Clear(ctx context.Context, removed func(endpoint string, n int, err error)) {
	if l.Keep {
		return
	}
	for _, client := range l.Clients {
		n, err := agent.Clean(ctx, client, l.RunID, l.living)
		if ctx.Err() != nil {
			return // Sweep removes the rest at the end of the run
		}
		removed(client.BaseURL(), n, err)
	}
}

// The total time limit of Sweep, and the pause in which a server can finish an abandoned create
// request.
const (
	sweepTimeout = 30 * time.Second
	sweepPause   = 500 * time.Millisecond
)

// Sweep removes the agents that a stop left behind. These are agents that could not be deleted, and
// agents whose create request was abandoned before the server answered. Sweep keeps agents that the
// next process can reattach to. It skips every server for which mute returns true, because such a
// server did not answer delete requests during the run. If one server fails, it continues with the
// other servers. The parameter left is the number of agents that are known to remain. Sweep returns
// how many agents remain.
func (l *Agents) Sweep(ctx context.Context, left int, mute func(endpoint string) bool) int {
	if l.Keep {
		return left
	}
	var clients []*letta.Client
	for _, client := range l.Clients {
		if mute(client.BaseURL()) {
			l.Say("agents remain on %s: the server does not answer delete requests", client.BaseURL())
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
				l.Say("agents might remain on %s: %v", client.BaseURL(), err)
			}
		}
	}
	if removed > 0 {
		l.Note("removed %s", format.Plural(int64(removed), "leftover agent"))
	}
	if len(clients) < len(l.Clients) || slices.Contains(failed, true) {
		return max(0, left-removed)
	}
	return 0
}
