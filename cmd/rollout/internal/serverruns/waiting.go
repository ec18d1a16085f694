package serverruns

import (
	"context"
	"time"

	"github.com/rollout-rl/rollout/collector/letta"
)

type waiting struct {
	letta.Run
	next time.Time // next time to check the steps, by the server's clock
}

const (
	// askedEach is the maximum number of waiting runs that are fetched one by one. If there are
	// more, the feed lists all active runs instead.
	askedEach = 4
	// quietLeast is the time for which a run must be silent before its steps prove that it has
	// ended. A run in a conversation never reports its end. Every other run reports its end soon
	// after its last step.
	quietLeast = 30 * time.Second
	quietMost  = 5 * time.Minute // longest time between two checks
)

// ended returns the waiting runs that have ended. The other runs remain in the list.
func (f *Feed) ended(ctx context.Context) (out []letta.Run, err error) {
	if len(f.waiting) == 0 {
		return nil, nil
	}
	var active map[string]bool
	if len(f.waiting) > askedEach {
		if active, err = f.active(ctx); err != nil {
			return nil, err
		}
	}
	left := f.waiting[:0:0]
	for _, w := range f.waiting {
		over := false
		if !active[w.ID] {
			if over, err = f.over(ctx, w); err != nil {
				return nil, err // the next pass rechecks all waiting runs
			}
		}
		if !over && !serverNow(f.cfg.Client).Before(w.next) {
			if over, err = f.quiet(ctx, w); err != nil {
				return nil, err
			}
		}
		if over {
			out = append(out, w.Run)
		} else {
			left = append(left, w)
		}
	}
	f.waiting = left
	return out, nil
}

// active lists the ids of all runs that have not ended.
func (f *Feed) active(ctx context.Context) (map[string]bool, error) {
	runs, err := f.cfg.Client.AllRuns(ctx, letta.RunsQuery{Statuses: []string{"created", "running"}, Ascending: true})
	if err != nil {
		return nil, err
	}
	active := make(map[string]bool, len(runs))
	for i := range runs {
		active[runs[i].ID] = true
	}
	return active, nil
}

// over reports whether the run has ended or has been deleted. For a deleted run, the reader of the
// task reports the error.
func (f *Feed) over(ctx context.Context, w *waiting) (bool, error) {
	run, err := f.cfg.Client.Run(ctx, w.ID)
	switch {
	case letta.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, err
	}
	w.Run = *run
	return run.Ended(), nil
}

// quiet reports whether a run is over although the server still lists it as active. A crash of the
// server leaves such runs behind. A run is over if its steps prove that it has ended, or if it has
// been silent for Config.StuckAfter.
func (f *Feed) quiet(ctx context.Context, w *waiting) (bool, error) {
	steps, err := f.cfg.Client.RunSteps(ctx, w.ID)
	if letta.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	messages, err := f.cfg.Client.RunMessages(ctx, w.ID)
	if err != nil && !letta.IsNotFound(err) {
		return false, err
	}
	last, _ := began(&w.Run)
	for i := range messages {
		if at, err := messages[i].Date.Time(); err == nil && at.After(last) {
			last = at
		}
	}
	now := serverNow(f.cfg.Client)
	silent := now.Sub(last)
	if letta.StepsEnded(steps) && silent >= quietLeast || silent > f.cfg.StuckAfter {
		return true, nil
	}
	w.next = now.Add(min(max(silent, quietLeast), quietMost))
	return false, nil
}
