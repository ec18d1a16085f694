package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/human"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/preflight"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/serverruns"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
)

// This file is collect --from-runs: server runs that another program drove are the tasks of a
// stream, and an agent.Reader reads each instead of driving an agent. What is taken and done is
// known as in every stream, by tasks.jsonl and the commit log.

// readRuns makes a run that reads server runs one that takes its tasks as they come. What has
// failed is taken up from what is known.
func (o *collectOptions) readRuns(c *config.Config) {
	o.reads, o.asked = c.Tasks.FromRuns != nil, o.stream
	o.stream = o.stream || o.reads && !o.retryFailed
}

// checkReads refuses to read server runs into a run that drove its own agents, and to drive agents
// in one that has read some.
func checkReads(l *config.Loader, info *runfolder.Info) error {
	had := config.NewLoader(func(string) string { return "" })
	had.FromRun(info.Config, "tasks")
	text := "the run drives its own agents, and reads no server runs"
	switch before := had.Config.Tasks.FromRuns != nil; {
	case before == (l.Config.Tasks.FromRuns != nil):
		return nil
	case before:
		text = "the run reads server runs, and drives no agents"
	}
	return runfolder.Refuse(l.Config.Output.Dir, exit.Complaints{errors.New("tasks.from_runs: " + text)})
}

// checkRead refuses a task that is not a server run.
func checkRead(t *collector.Task) error {
	if t.Recorded == nil {
		return errors.New("the run reads server runs (tasks.from_runs) and takes no other tasks")
	}
	return nil
}

// endpoint is the i-th server, with what drives agents there or reads its server runs.
func (c *collection) endpoint(i int) collector.Endpoint {
	e := collector.Endpoint{Name: c.endpoints[i], MaxInFlight: c.inFlight[i], Weight: c.config.Server.URLs[i].Weight, Answered: i < len(c.answered) && c.answered[i]}
	if c.options.reads {
		e.Backend = c.readers[i]
	} else {
		e.Backend = c.backends[i]
	}
	return e
}

// feed is what gives the server runs. known reports whether one is a task of the run.
func (c *collection) feed(known func(id string) bool) *serverruns.Feed {
	return serverruns.New(serverruns.Config{
		Client: c.clients[0], Which: *c.config.Tasks.FromRuns, Follow: c.config.Tasks.Follow && !c.options.dryRun,
		StuckAfter: c.config.Server.StuckAfter, Known: known,
		Again: func(err error, wait time.Duration) {
			c.Say("the list of server runs cannot be read, trying again in %v: %v", wait, err)
		},
	})
}

// checkNamed looks whether the server runs that are named are there, before anything is written.
func (c *collection) checkNamed(ctx context.Context) error {
	if !c.options.reads || c.options.retryFailed {
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

// takeRuns takes the server runs until all are taken, or, where they are followed, ctx is done.
func (g *grouping) takeRuns(ctx context.Context) error {
	feed := g.feed(g.log.Has)
	err := g.intake.Take(feed.Tasks(ctx), feed.Ready, g.toldOf)
	if err != nil {
		return g.runsError(err)
	}
	if ctx.Err() == nil { // else they are followed, and whoever ended that has said why
		g.tellFound(feed.Counts())
		g.intake.End(whyEnd)
	}
	return nil
}

// runsError is the error of server runs that cannot be listed.
func (c *collection) runsError(err error) error {
	if _, missing := errors.AsType[*serverruns.MissingError](err); missing {
		return exit.Hint(exit.Usagef("tasks.from_runs: %w", err), "it may have been deleted with its agent; rollout steps list shows what a server run has")
	}
	return preflight.Unusable(c.clients[0], err)
}

// tellFound tells a person what was found.
func (c *collection) tellFound(n serverruns.Counts) {
	c.Log.Info("server runs", "given", n.Given, "known", n.Known, "running", n.Running)
	if n.Total() == 0 {
		c.unmatched.Store(true)
		return
	}
	c.Note("%s", foundText(n))
	if n.Running > 0 {
		c.Say("%d server runs have not ended and are left out: --follow waits for them, and so does %s later", n.Running, runfolder.ResumeCommand(c.dir()))
	}
}

// unmatchedError is the error of a collection that matched no server run and does not wait
// for one.
func (c *collection) unmatchedError() error {
	return exit.Hint(exit.With(exit.Tolerance, fmt.Errorf("no server run of %s matches --from-runs", c.clients[0].BaseURL())),
		"check agent=, tag= and since=, which is compared with the clock of the server; --follow waits for server runs that begin later")
}

// foundText says what was found.
func foundText(n serverruns.Counts) string {
	return fmt.Sprintf("%d server runs match: %d to be read, %d in the run already, %d have not ended", n.Total(), n.Given, n.Known, n.Running)
}

// tellFollowed tells a person why a run that follows does not end by itself.
func (g *grouping) tellFollowed() {
	if g.config.Tasks.Follow {
		g.Note("server runs are read as they end, until rollout ctl %s drain or an interrupt", human.Shell(g.folder.Dir))
	}
}

// countRuns counts the server runs of a dry run.
func (c *collection) countRuns(ctx context.Context) (serverruns.Counts, error) {
	feed := c.feed(c.tasks.Has)
	for _, err := range feed.Tasks(ctx) {
		if err != nil {
			return serverruns.Counts{}, c.runsError(err)
		}
	}
	return feed.Counts(), context.Cause(ctx)
}
