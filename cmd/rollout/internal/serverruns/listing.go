package serverruns

import (
	"context"
	"errors"
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
	after  *letta.Run // the run after which it continues; nil: from the beginning
	begun  bool
}

// restarts bounds how often a pass restarts after an older run, because the run after which it
// should continue was deleted.
const restarts = 10

// all passes each page of runs that are not older than since to take, until the list ends. The
// list ends with an empty page, because a server can return pages shorter than the limit. It
// also ends with a run that began after the pass did.
func (l *listing) all(ctx context.Context, take func([]letta.Run) error) error {
	if !l.begun && !l.since.IsZero() {
		if err := l.seek(ctx, l.since.Add(-overlap)); err != nil {
			return err
		}
	}
	l.begun = true
	start := l.now()
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

// seek makes the list continue after the newest run that began before a moment.
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
