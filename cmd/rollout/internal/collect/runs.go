package collect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/preflight"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/serverruns"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
)

// This file implements collect --from-runs. Its tasks are server runs that another program drove,
// and they form a stream. An agent.Reader reads each one instead of driving an agent. As in every
// stream, tasks.jsonl and the commit log record what is known and done.

func checkRead(t *collector.Task) error {
	if t.Recorded == nil {
		return errors.New("this run reads server runs (tasks.from_runs) and accepts no other tasks")
	}
	return nil
}

func (c *collection) endpoint(i int) collector.Endpoint {
	e := collector.Endpoint{Name: c.endpoints[i], MaxInFlight: c.inFlight[i], Weight: c.config.Server.URLs[i].Weight, Answered: i < len(c.answered) && c.answered[i]}
	if c.options.FromRuns {
		e.Backend = c.readers[i]
	} else {
		e.Backend = c.backends[i]
	}
	return e
}

// feed returns a feed of the server runs. known reports whether a server run is already a task of
// the run.
func (c *collection) feed(known func(id string) bool) *serverruns.Feed {
	return serverruns.New(serverruns.Config{
		Client: c.clients[0], Which: *c.config.Tasks.FromRuns, Follow: c.config.Tasks.Follow && !c.options.DryRun,
		StuckAfter: c.config.Server.StuckAfter, Known: known,
		Again: func(err error, wait time.Duration) {
			c.Say("cannot list the server runs, retrying in %v: %v", wait, err)
		},
	})
}

// checkNamed checks before anything is written that the server runs listed by id exist.
func (c *collection) checkNamed(ctx context.Context) error {
	if !c.options.FromRuns || c.options.RetryFailed {
		return nil
	}
	for _, id := range c.config.Tasks.FromRuns.IDs {
		if c.tasks.Has(id) {
			continue
		}
		if _, err := c.clients[0].Run(ctx, id); letta.IsNotFound(err) {
			return c.runsError(&serverruns.MissingError{ID: id})
		} else if err != nil {
			return preflight.Unusable(c.clients[0], err)
		}
	}
	return nil
}

// takeRuns takes server runs until all are taken or, with tasks.follow, until ctx is done.
func (g *grouping) takeRuns(ctx context.Context) error {
	feed := g.feed(g.log.Has)
	err := g.intake.Take(feed.Tasks(ctx), feed.Ready, g.toldOf)
	if err != nil {
		return g.runsError(err)
	}
	if ctx.Err() == nil { // otherwise a stop or a drain ended a run that follows, and reported it
		g.tellFound(feed.Counts())
		g.intake.End(whyEnd)
	}
	return nil
}

// runsError returns the error for server runs that cannot be listed.
func (c *collection) runsError(err error) error {
	if _, missing := errors.AsType[*serverruns.MissingError](err); missing {
		return exit.Hint(exit.Usagef("tasks.from_runs: %w", err), "it may have been deleted with its agent; rollout steps list shows the steps of a server run")
	}
	return preflight.Unusable(c.clients[0], err)
}

func (c *collection) tellFound(n serverruns.Counts) {
	c.Log.Info("server runs", "given", n.Given, "known", n.Known, "running", n.Running)
	if n.Total() == 0 {
		c.unmatched.Store(true)
		return
	}
	c.Note("%s", foundText(n))
	if n.Running > 0 {
		c.Say("%d server runs have not ended and are skipped; use --follow, or run %s later", n.Running, runfolder.ResumeCommand(c.dir()))
	}
}

// unmatchedError returns the error of a collection that matched no server run and does not wait for
// one.
func (c *collection) unmatchedError() error {
	return exit.Hint(exit.With(exit.Tolerance, fmt.Errorf("no server run of %s matches --from-runs", c.clients[0].BaseURL())),
		"check agent=, tag= and since= (compared with the server's clock); --follow waits for new server runs")
}

func foundText(n serverruns.Counts) string {
	return fmt.Sprintf("%d server runs match: %d to read, %d already in the run, %d not ended", n.Total(), n.Given, n.Known, n.Running)
}

// tellFollowed explains why a run that follows does not end by itself.
func (g *grouping) tellFollowed() {
	if g.config.Tasks.Follow {
		g.Note("reading server runs as they end; rollout ctl %s drain or an interrupt ends the run", format.Shell(g.folder.Dir))
	}
}

func (c *collection) countRuns(ctx context.Context) (serverruns.Counts, error) {
	feed := c.feed(c.tasks.Has)
	for _, err := range feed.Tasks(ctx) {
		if err != nil {
			return serverruns.Counts{}, c.runsError(err)
		}
	}
	return feed.Counts(), context.Cause(ctx)
}
