package letta

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
)

// A RunsQuery chooses server runs.
type RunsQuery struct {
	AgentID        string
	ConversationID string
	Statuses       []string
	StopReason     StopReason
	// Ascending is oldest first; the server's own order is newest first.
	Ascending bool
	// Limit is how many at most; 0 means 100, the server's default.
	Limit int
	After string
}

// Runs lists one page of server runs.
func (c *Client) Runs(ctx context.Context, query RunsQuery) ([]Run, error) {
	q := url.Values{"order": {order(query.Ascending)}}
	set(q, "agent_id", query.AgentID)
	set(q, "conversation_id", query.ConversationID)
	set(q, "stop_reason", string(query.StopReason))
	set(q, "after", query.After)
	for _, s := range query.Statuses {
		q.Add("statuses", s)
	}
	if query.Limit > 0 {
		q.Set("limit", strconv.Itoa(query.Limit))
	}
	return fetchList[Run](ctx, c, &request{op: "list runs", method: http.MethodGet, target: at("/v1/runs/"), query: q})
}

// LastRun returns the newest server run of an agent; nil: it has none.
func (c *Client) LastRun(ctx context.Context, agentID string) (*Run, error) {
	if err := needID("list runs", agentID); err != nil {
		return nil, err
	}
	runs, err := c.Runs(ctx, RunsQuery{AgentID: agentID, Limit: 1})
	if err != nil || len(runs) == 0 {
		return nil, err
	}
	return &runs[0], nil
}

// Run returns a server run.
func (c *Client) Run(ctx context.Context, id string) (*Run, error) {
	return fetch[Run](ctx, c, &request{op: "get run", method: http.MethodGet, target: at("/v1/runs/{}", id)}, nil)
}

// RunSteps returns all steps of a server run, oldest first.
func (c *Client) RunSteps(ctx context.Context, id string) ([]Step, error) {
	return pages(1000, func(after string, limit int) ([]Step, error) {
		q := url.Values{"order": {"asc"}, "limit": {strconv.Itoa(limit)}}
		set(q, "after", after)
		return fetchList[Step](ctx, c, &request{op: "list steps of run", method: http.MethodGet, target: at("/v1/runs/{}/steps", id), query: q})
	}, func(s *Step) string { return s.ID })
}

// RunMessages returns all messages of a server run, oldest first, those of the
// request included. Texts that an answer left out are here.
//
// A stored message may come as several of this list, with one id; none is lost.
func (c *Client) RunMessages(ctx context.Context, id string) (Messages, error) {
	return c.messagePages(ctx, "list messages of run", at("/v1/runs/{}/messages", id))
}

// messagePages pages through messages. It does not drop repeated ids, because
// what the assistant said and what it called share one.
func (c *Client) messagePages(ctx context.Context, op string, of target) (Messages, error) {
	const size = 1000
	var all Messages
	for after := ""; ; {
		q := url.Values{"order": {"asc"}, "limit": {strconv.Itoa(size)}}
		set(q, "after", after)
		page, err := fetchList[Message](ctx, c, &request{op: op, method: http.MethodGet, target: of, query: q})
		if err != nil {
			return nil, err
		}
		if all == nil {
			all = page
		} else {
			all = append(all, page...)
		}
		if len(page) < size {
			return all, nil
		}
		last := page[len(page)-1].ID
		if last == after || last == "" {
			return all, nil
		}
		after = last
	}
}

// RunUsage returns the sums over the steps of a server run.
func (c *Client) RunUsage(ctx context.Context, id string) (*UsageStatistics, error) {
	return fetch[UsageStatistics](ctx, c, &request{op: "usage of run", method: http.MethodGet, target: at("/v1/runs/{}/usage", id)}, nil)
}

func set(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}

func order(ascending bool) string {
	if ascending {
		return "asc"
	}
	return "desc"
}
