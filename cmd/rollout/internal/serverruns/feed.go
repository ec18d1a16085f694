package serverruns

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/wait"
)

// Config selects the server runs for a Feed.
type Config struct {
	Client *letta.Client
	Which  config.Runs
	// Follow keeps the feed running until the context is done or no more runs can be added. Without
	// Follow, the feed ends once it has yielded the existing runs that have ended.
	Follow bool
	// StuckAfter is the time for which the feed waits for a run without activity. The feed then
	// yields the run, and the reader reports that the run has not ended.
	StuckAfter time.Duration
	// Known reports whether a server run is already a task of the collection.
	Known func(id string) bool
	// Again is called before a failed request is retried. wait is the pause before the retry.
	Again func(err error, wait time.Duration)
}

// Counts counts the runs that a Feed has found.
type Counts struct {
	// Given counts the runs that were yielded as tasks. Known counts the runs that were already
	// tasks. Running counts the runs that have not ended.
	Given, Known, Running int
}

// Total returns the number of runs found.
func (c Counts) Total() int { return c.Given + c.Known + c.Running }

// A Feed yields each server run that has ended. It yields each run only once, provided that Known
// returns true for every run that has been yielded. A Feed is not safe for concurrent use.
type Feed struct {
	cfg      Config
	listings []*listing
	tagged   *tagged // selects the runs of the last listing by tag; nil if no tags are selected

	seen    map[string]bool // runs seen in the first pass, ended or not; nil after that pass
	waiting []*waiting
	ahead   int // number of ended runs that have been fetched but not yet yielded
	counts  Counts
}

// New returns a Feed.
func New(cfg Config) *Feed {
	f := &Feed{cfg: cfg, seen: map[string]bool{}}
	for _, id := range cfg.Which.Agents {
		f.listings = append(f.listings, &listing{client: cfg.Client, agent: id, since: cfg.Which.Since})
	}
	if len(cfg.Which.Tags) > 0 || cfg.Which.All() {
		f.listings = append(f.listings, &listing{client: cfg.Client, since: cfg.Which.Since})
	}
	if len(cfg.Which.Tags) > 0 {
		f.tagged = &tagged{client: cfg.Client, tags: cfg.Which.Tags}
	}
	return f
}

// Counts returns the counts so far.
func (f *Feed) Counts() Counts {
	c := f.counts
	c.Running = len(f.waiting)
	return c
}

// Ready reports whether the next task can be yielded without a request to the server.
func (f *Feed) Ready() bool { return f.ahead > 0 }

// A MissingError reports that a server run requested by id does not exist.
type MissingError struct{ ID string }

func (e *MissingError) Error() string { return "the server has no run " + e.ID }

// The limits of the pause between two passes of a feed with Follow. When a pass finds a new run,
// the pause is reset to pauseLeast.
const (
	pauseLeast = time.Second
	pauseMost  = 10 * time.Second
)

// Tasks yields one task for each server run that has ended. The iteration ends with an error if an
// error is permanent, or if a transient error lasts longer than the time limit in the constant
// patience.
func (f *Feed) Tasks(ctx context.Context) iter.Seq2[collector.Task, error] {
	return func(yield func(collector.Task, error) bool) {
		err := f.each(ctx, func(runs []letta.Run) error {
			f.ahead = len(runs)
			for i := range runs {
				f.ahead--
				f.counts.Given++
				if !yield(f.task(&runs[i]), nil) {
					return errEnough
				}
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) && ctx.Err() == nil {
			yield(collector.Task{}, fmt.Errorf("cannot list the server runs of %s: %w", f.cfg.Client.BaseURL(), agent.Translate(err)))
		}
	}
}

// errEnough ends a feed whose caller has stopped the iteration.
var errEnough = errors.New("enough")

func (f *Feed) task(r *letta.Run) collector.Task {
	return collector.Task{ID: r.ID, Samples: 1, Recorded: &collector.Recorded{Server: f.cfg.Client.BaseURL(), Run: r.ID}}
}

// This method finds the new runs that have ended, and calls give with these runs. It makes one pass
// or, with Follow, repeated passes.
func (f *Feed) each(ctx context.Context, give func([]letta.Run) error) error {
	if err := f.named(ctx, give); err != nil {
		return err
	}
	for pause := pauseLeast; ; {
		before := f.counts.Given
		if err := f.look(ctx, give); err != nil {
			return err
		}
		if !f.cfg.Follow || len(f.listings) == 0 && len(f.waiting) == 0 { // only runs requested by id, which are a fixed set
			return nil
		}
		if pause = min(pause*3/2, pauseMost); f.counts.Given > before {
			pause = pauseLeast
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// This method fetches the runs that were requested by id. If a run has ended, it calls give with
// the run.
func (f *Feed) named(ctx context.Context, give func([]letta.Run) error) error {
	for _, id := range f.cfg.Which.IDs {
		var run *letta.Run
		if f.cfg.Known(id) {
			f.seen[id] = true
			f.counts.Known++
			continue
		}
		err := f.patiently(ctx, func() (err error) {
			run, err = f.cfg.Client.Run(ctx, id)
			return err
		})
		if letta.IsNotFound(err) {
			return &MissingError{id}
		}
		if err != nil {
			return err
		}
		if at, known := began(run); known && at.Before(f.cfg.Which.Since) {
			continue
		}
		if err := f.sort([]letta.Run{*run}, give); err != nil {
			return err
		}
	}
	return nil
}

// look makes one pass. It lists new runs and rechecks the waiting runs.
func (f *Feed) look(ctx context.Context, give func([]letta.Run) error) error {
	for i, l := range f.listings {
		tagged := f.tagged
		if i < len(f.cfg.Which.Agents) {
			tagged = nil
		}
		err := f.patiently(ctx, func() error {
			return l.all(ctx, func(runs []letta.Run) (err error) {
				if tagged != nil {
					if runs, err = f.withTag(ctx, runs); err != nil {
						return err
					}
				}
				return f.sort(runs, give)
			})
		})
		if err != nil {
			return err
		}
	}
	f.seen = nil
	var ended []letta.Run
	err := f.patiently(ctx, func() (err error) {
		ended, err = f.ended(ctx)
		return err
	})
	if err != nil || len(ended) == 0 {
		return err
	}
	return give(ended)
}

// withTag returns the runs whose agent has at least one of the tags.
func (f *Feed) withTag(ctx context.Context, runs []letta.Run) ([]letta.Run, error) {
	out := runs[:0:0]
	for i := range runs {
		has, err := f.tagged.match(ctx, &runs[i])
		if err != nil {
			return nil, err
		}
		if has {
			out = append(out, runs[i])
		}
	}
	return out, nil
}

// sort selects the new runs that have ended, and calls give with these runs. It adds the other new
// runs to f.waiting.
func (f *Feed) sort(runs []letta.Run, give func([]letta.Run) error) error {
	ended := runs[:0:0]
	for i := range runs {
		r := &runs[i]
		again := f.seen[r.ID] // a run can be in several lists
		if f.seen != nil {
			f.seen[r.ID] = true
		}
		switch {
		case again:
		case f.cfg.Known(r.ID):
			if f.seen != nil {
				f.counts.Known++
			}
		case slices.ContainsFunc(f.waiting, func(w *waiting) bool { return w.ID == r.ID }):
		case slices.ContainsFunc(ended, func(o letta.Run) bool { return o.ID == r.ID }):
		case r.Ended():
			ended = append(ended, *r)
		default:
			f.waiting = append(f.waiting, &waiting{Run: *r, next: f.firstLook(r)})
		}
	}
	if len(ended) == 0 {
		return nil
	}
	return give(ended)
}

// firstLook returns the time when the steps of a run are first checked.
func (f *Feed) firstLook(r *letta.Run) time.Time {
	at, _ := began(r)
	return at.Add(quietLeast)
}

// These constants limit the retries in patiently. A restart of the server must not end the program,
// but a long outage must end it with an error.
const (
	patience  = 10 * time.Minute
	retryMost = 30 * time.Second
)

// patiently retries look after a transient error. On a retry, look recognizes the runs that it
// handled before it failed.
func (f *Feed) patiently(ctx context.Context, look func() error) error {
	began := time.Now()
	for pause := pauseLeast; ; pause = min(2*pause, retryMost) {
		err := look()
		if err == nil || ctx.Err() != nil || !passing(err) || time.Since(began) > patience {
			return err
		}
		f.cfg.Again(err, pause)
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// passing reports whether an error is transient.
func passing(err error) bool {
	for _, may := range []error{letta.ErrConnection, letta.ErrUnavailable, letta.ErrBusy, letta.ErrServer, letta.ErrTimeout, letta.ErrIdle} {
		if errors.Is(err, may) {
			return true
		}
	}
	return false
}

func sleep(ctx context.Context, d time.Duration) error {
	if wait.For(ctx, d) {
		return nil
	}
	return context.Cause(ctx)
}
