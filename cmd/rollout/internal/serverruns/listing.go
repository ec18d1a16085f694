package serverruns

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/rollout-rl/rollout/collector/letta"
)

// pageSize is the maximum page size that the server supports.
const pageSize = 1000

// A pass continues the listing after the newest run that is older than overlap. A run can become
// visible late, but its delay must stay below overlap. The delay is the time until the run is
// committed plus the clock differences between the server's processes.
const overlap = 2 * time.Minute

// A listing is one of the server's lists of runs, oldest run first. Each pass continues where the
// previous pass ended.
type listing struct {
	client *letta.Client
	agent  string // agent id; empty for all agents
	since  time.Time
	after  *letta.Run // the next pass lists the runs after this one; nil means all runs
	begun  bool
}

// A pass restarts at an older run if the run at its cursor has been deleted. restarts is the
// maximum number of restarts in one pass.
const restarts = 10

// This method calls take with each page of runs, but omits the runs that are older than l.since. It
// stops at an empty page, or when a page ends with a run that began after the start of this pass. A
// page with fewer runs than the limit need not be the last page.
func (l *listing) all(ctx context.Context, take func([]letta.Run) error) error {
	if !l.begun && !l.since.IsZero() {
		if err := l.seek(ctx, l.since.Add(-overlap)); err != nil {
			return err
		}
	}
	l.begun = true
	start := serverNow(l.client)
	settled := start.Add(-overlap)
	for from, again := l.after, 0; ; {
		page, err := l.client.Runs(ctx, letta.RunsQuery{AgentID: l.agent, Ascending: true, Limit: pageSize, After: from})
		if errors.Is(err, letta.ErrCursorGone) && again < restarts {
			again++
			lost, _ := began(from)
			if err := l.seek(ctx, lost); err != nil {
				return err
			}
			from = l.after
			continue
		}
		if err != nil || len(page) == 0 {
			return err
		}
		recent := page[:0:0]
		for i := range page {
			at, known := began(&page[i])
			if known && at.Before(settled) {
				l.after = &page[i]
			}
			if !known || !at.Before(l.since) {
				recent = append(recent, page[i])
			}
		}
		if err := take(recent); err != nil {
			return err
		}
		from = &page[len(page)-1]
		if at, known := began(from); known && at.After(start) {
			return nil
		}
	}
}

// seek positions the listing after the newest run that began before the given moment.
func (l *listing) seek(ctx context.Context, moment time.Time) error {
	l.after = nil
	query := letta.RunsQuery{AgentID: l.agent, Limit: pageSize}
	for again := 0; ; {
		page, err := l.client.Runs(ctx, query)
		if errors.Is(err, letta.ErrCursorGone) && again < restarts {
			again++
			query.After = nil
			continue
		}
		if err != nil || len(page) == 0 {
			return err
		}
		for i := range page {
			if at, known := began(&page[i]); known && at.Before(moment) {
				l.after = &page[i]
				return nil
			}
		}
		query.After = &page[len(page)-1]
	}
}

func serverNow(c *letta.Client) time.Time {
	ahead, _ := c.Clock()
	return time.Now().Add(ahead)
}

// began returns the time when a run began, by the server's clock.
func began(r *letta.Run) (at time.Time, known bool) {
	if r.CreatedAt == "" {
		return at, false
	}
	at, err := r.CreatedAt.Time()
	return at, err == nil
}

// agentsPage is the number of agents per page. It is small because the states of agents are large.
const agentsPage = 100

// The tagged type selects the runs whose agents have at least one of the tags. It lists all agents
// once, when it checks the first run. An agent that was created later is fetched separately, also
// only once.
type tagged struct {
	client *letta.Client
	tags   []string
	has    map[string]bool // by agent id: whether the agent has one of the tags; nil if the agents have not yet been listed
	listed time.Time       // time of the listing, by the server's clock
}

// match reports whether the run's agent has at least one of the tags. A deleted agent has no tags.
func (t *tagged) match(ctx context.Context, r *letta.Run) (bool, error) {
	if t.has == nil {
		if err := t.list(ctx); err != nil {
			return false, err
		}
	}
	has, known := t.has[r.AgentID]
	if at, ok := began(r); known || ok && at.Before(t.listed.Add(-overlap)) {
		return has, nil
	}
	state, err := t.client.Agent(ctx, r.AgentID)
	switch {
	case letta.IsNotFound(err):
		has = false
	case err != nil:
		return false, err
	default:
		has = slices.ContainsFunc(t.tags, func(tag string) bool { return slices.Contains(state.Tags, tag) })
	}
	t.has[r.AgentID] = has
	return has, nil
}

func (t *tagged) list(ctx context.Context) error {
	has, now := map[string]bool{}, serverNow(t.client)
	for _, tag := range t.tags {
		for after := ""; ; {
			page, err := t.client.Agents(ctx, []string{tag}, after, agentsPage)
			if err != nil {
				return err
			}
			for i := range page {
				if slices.Contains(page[i].Tags, tag) {
					has[page[i].ID] = true
				}
			}
			if len(page) == 0 || page[len(page)-1].ID == after {
				break
			}
			after = page[len(page)-1].ID
		}
	}
	t.has, t.listed = has, now
	return nil
}
