package letta

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// A RunsQuery selects server runs.
type RunsQuery struct {
	AgentID  string
	Statuses []string
	// Ascending orders the oldest first. The default is newest first.
	Ascending bool
	// Limit bounds the page. Default 100, like the server's.
	Limit int
	// After is the run before the page, in the requested order. Nil: start with the first run.
	After *Run
}

// ErrCursorGone reports that the run after which a page should start was deleted with its agent.
// The server then lists from the first run.
var ErrCursorGone = errors.New("letta: the run after which the list continues was deleted")

// Runs lists one page of server runs. A page can have fewer runs than Limit before the end of the
// list; only an empty page is the end.
//
// Servers 0.16.7 and 0.16.8 swap the cursors: after=ID lists the runs before that run in the
// requested order, and before=ID the runs after it (services/helpers/run_manager_helper.py). So
// Runs tests once which cursor continues the list, and checks each page.
func (c *Client) Runs(ctx context.Context, query RunsQuery) ([]Run, error) {
	if query.After == nil {
		return c.runsPage(ctx, query, "")
	}
	cursor := c.runsCursor.Load()
	for range 2 {
		if cursor == nil {
			var err error
			if cursor, err = c.findCursor(ctx, query); err != nil {
				return nil, err
			}
		}
		page, err := c.runsPage(ctx, query, *cursor)
		if err != nil || query.side(page) >= 0 {
			return page, err
		}
		cursor = nil // the server changed, or the run is gone
	}
	return nil, ErrCursorGone
}

// findCursor returns the parameter that continues a list of runs. It remembers the parameter if
// one run after the cursor and one run before it prove it.
func (c *Client) findCursor(ctx context.Context, query RunsQuery) (*string, error) {
	query.Limit = 1
	names := [...]string{"before", "after"}
	var sides [len(names)]int
	for i := range names {
		page, err := c.runsPage(ctx, query, names[i])
		if err != nil {
			return nil, err
		}
		sides[i] = query.side(page)
	}
	i := 0
	if sides[1] > sides[0] {
		i = 1
	}
	if sides[0] != sides[1] {
		c.runsCursor.Store(&names[i])
	}
	return &names[i], nil
}

// side returns the side of the cursor on which a page is, in the requested order: 1 after it, -1
// before it, 0 unknown. Runs with the same time are ordered by id.
func (q *RunsQuery) side(page []Run) int {
	sign := -1
	if q.Ascending {
		sign = 1
	}
	from, err := q.After.CreatedAt.Time()
	for i := range page {
		if page[i].ID == q.After.ID {
			return -1
		}
		at, unknown := page[i].CreatedAt.Time()
		if way := at.Compare(from); err == nil && unknown == nil && way != 0 {
			return way * sign
		}
	}
	if len(page) == 0 {
		return 0
	}
	return strings.Compare(page[0].ID, q.After.ID) * sign
}

// runsPage lists one page. cursor is the parameter for query.After.
func (c *Client) runsPage(ctx context.Context, query RunsQuery, cursor string) ([]Run, error) {
	q := url.Values{"order": {order(query.Ascending)}}
	set(q, "agent_id", query.AgentID)
	if cursor != "" {
		q.Set(cursor, query.After.ID)
	}
	for _, s := range query.Statuses {
		q.Add("statuses", s)
	}
	if query.Limit > 0 {
		q.Set("limit", strconv.Itoa(query.Limit))
	}
	return fetchList[Run](ctx, c, &request{op: "list runs", method: http.MethodGet, target: at("/v1/runs/"), query: q})
}

// restarts bounds how often a list restarts because a run was deleted during the listing.
const restarts = 5

// AllRuns lists all server runs that match the query, each once. If the order is newest first, it
// omits runs that start during the listing.
func (c *Client) AllRuns(ctx context.Context, query RunsQuery) ([]Run, error) {
	var all []Run
	seen := map[string]bool{}
	query.Limit = 1000
	for again := 0; ; {
		page, err := c.Runs(ctx, query)
		switch {
		case errors.Is(err, ErrCursorGone) && again < restarts:
			again++
			query.After = nil
			continue
		case err != nil:
			return nil, err
		case len(page) == 0:
			return all, nil
		}
		for i := range page {
			if !seen[page[i].ID] {
				seen[page[i].ID] = true
				all = append(all, page[i])
			}
		}
		query.After = &page[len(page)-1]
	}
}

// LastRun returns the newest server run of an agent, or nil if it has none.
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
	return pages(ctx, c, "list steps of run", at("/v1/runs/{}/steps", id), url.Values{"order": {"asc"}}, func(s *Step) (id, key string) { return s.ID, s.ID })
}

// RunMessages returns all messages of a server run, oldest first, including messages of the request
// and texts that the answer omitted. One stored message can appear as several with the same id.
func (c *Client) RunMessages(ctx context.Context, id string) (Messages, error) {
	return c.messagePages(ctx, "list messages of run", at("/v1/runs/{}/messages", id))
}

// messagePages lists all pages of messages. It keeps messages with the same id: an assistant text
// and its tool calls share one.
func (c *Client) messagePages(ctx context.Context, op string, of target) (Messages, error) {
	return pages(ctx, c, op, of, url.Values{"order": {"asc"}}, func(m *Message) (id, key string) { return m.ID, string(m.JSON) })
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
