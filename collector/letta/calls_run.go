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
	// If Ascending is true, the oldest run is first. By default, the newest run is first.
	Ascending bool
	// Limit is the maximum number of runs on a page. The default is 100, as on the server.
	Limit int
	// After is the last run before the page, in the requested order. If it is nil, the page starts
	// with the first run.
	After *Run
}

// ErrCursorGone means that the run in RunsQuery.After was deleted with its agent. The server then
// starts the list from the beginning.
var ErrCursorGone = errors.New("letta: cannot continue the list of runs, because the last run of the previous page was deleted")

// Runs returns one page of server runs. A page can have fewer runs than Limit even if more pages
// follow. Only an empty page marks the end of the list.
//
// Servers 0.16.7 and 0.16.8 swap the cursors: after=ID lists the runs before the run ID in the
// requested order, and before=ID lists the runs after it (services/helpers/run_manager_helper.py).
// So Runs tests once which parameter continues the list, and checks the position of every page.
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

// findCursor returns the query parameter that continues a list of runs. It tries both parameters.
// If the two pages are on different sides of the cursor, findCursor stores the parameter for later
// calls.
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

// side returns the position of a page relative to the run q.After in the requested order. The
// result is 1 if the page is after the run, -1 if the page is before the run, and 0 if unknown.
// Runs with the same creation time are ordered by id.
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

// runsPage returns one page. If cursor is not empty, it is the name of the query parameter for the
// id of query.After.
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

// restarts is the maximum number of times that AllRuns starts over because a run was deleted.
const restarts = 5

// AllRuns lists every server run that matches the query. No run appears twice. If query.Ascending
// is false, AllRuns omits runs that start while AllRuns is listing.
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

// RunMessages returns all messages of a server run, oldest first. They include the messages in the
// request, and text that the answer omitted. One stored message can appear as several messages with
// the same id.
func (c *Client) RunMessages(ctx context.Context, id string) (Messages, error) {
	return c.messagePages(ctx, "list messages of run", at("/v1/runs/{}/messages", id))
}

// messagePages lists all pages of messages. It keeps messages with the same id, because the text
// and the tool calls of a generation share an id.
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
