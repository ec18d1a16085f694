package serverruns

import (
	"context"
	"time"

	"github.com/rollout-rl/rollout/collector/letta"
)

// pageSize is the longest page that the server gives.
const pageSize = 1000

// overlap is how old a run must be for a listing to go on behind it: longer than a send needs
// to commit its run, and than the clocks of a server's processes differ.
const overlap = 2 * time.Minute

// A listing is one list of the server's runs, oldest first, that is continued where it ended.
type listing struct {
	client *letta.Client
	agent  string // of which agent; empty: of all
	since  time.Time
	after  string // the run behind which it goes on; empty: from the beginning
	begun  bool
}

// all gives page after page to take, of what is not older than since, until the list ends.
func (l *listing) all(ctx context.Context, take func([]letta.Run) error) error {
	if !l.begun && !l.since.IsZero() {
		if err := l.seek(ctx); err != nil {
			return err
		}
	}
	l.begun = true
	settled := l.now().Add(-overlap)
	for from := l.after; ; {
		page, err := l.client.Runs(ctx, letta.RunsQuery{AgentID: l.agent, Ascending: true, Limit: pageSize, After: from})
		if err != nil {
			return err
		}
		n := len(page)
		last := from
		recent := page[:0:0]
		for i := range page {
			last = page[i].ID
			at, known := began(&page[i])
			if known && at.Before(settled) {
				l.after = page[i].ID
			}
			if !known || !at.Before(l.since) {
				recent = append(recent, page[i])
			}
		}
		if err := take(recent); err != nil {
			return err
		}
		if n < pageSize || last == from {
			return nil
		}
		from = last
	}
}

// seek finds the newest run that began before since: the list goes on behind it. If it is
// deleted meanwhile the server lists from the beginning, and what is older is passed over.
func (l *listing) seek(ctx context.Context) error {
	for before := ""; ; {
		page, err := l.client.Runs(ctx, letta.RunsQuery{AgentID: l.agent, Limit: pageSize, After: before})
		if err != nil {
			return err
		}
		for i := range page {
			if at, known := began(&page[i]); known && at.Before(l.since.Add(-overlap)) {
				l.after = page[i].ID
				return nil
			}
		}
		if len(page) < pageSize || page[len(page)-1].ID == before {
			return nil
		}
		before = page[len(page)-1].ID
	}
}

// now is the time by the server's clock.
func (l *listing) now() time.Time { return serverNow(l.client) }

func serverNow(c *letta.Client) time.Time {
	ahead, _ := c.Clock()
	return time.Now().Add(ahead)
}

// began returns when a run began, by the server's clock.
func began(r *letta.Run) (at time.Time, known bool) {
	if r.CreatedAt == "" {
		return at, false
	}
	at, err := r.CreatedAt.Time()
	return at, err == nil
}
