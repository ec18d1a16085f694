package serverruns

import (
	"context"
	"slices"
	"time"

	"github.com/rollout-rl/rollout/collector/letta"
)

// agentsPage is the number of agents per page. It is small because their states are large.
const agentsPage = 100

// A tagged knows which agents have one of the tags. It lists the agents once, at the first run. It
// fetches each agent that was created later once.
type tagged struct {
	client *letta.Client
	tags   []string
	has    map[string]bool // by agent id; nil: not listed yet
	listed time.Time       // by the server's clock
}

// match reports whether the agent of the run has one of the tags. A deleted agent has none.
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
