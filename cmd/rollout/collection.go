package main

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"fmt"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/human"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/leftovers"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/machine"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/preflight"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/show"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tame"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/version"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/journal"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/limit"
	"github.com/rollout-rl/rollout/collector/limit/engine"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

// A collection is an invocation of collect: what was checked, and what is at work.
type collection struct {
	config  *config.Config
	display *show.Display
	info    runfolder.Info
	tasks   *runfolder.TaskSet
	fit     *tasks.Fit
	clients []*letta.Client
	folder  *runfolder.Folder
	log     *show.Log
	// inFlight is how many samples may be in flight per server: see config.inFlight.
	inFlight int
	// retryFailed takes up the samples that have failed instead of those that remain.
	retryFailed bool
	// tail is the policy of this invocation: run.tail, but that samples whose retry is
	// asked for are not cut by what their run was begun with.
	tail collector.Tail

	prompter    *prompt.Prompter
	dataset     *sink.Dataset
	kill        func() // ends the scorer's processes
	journal     *journal.Journal
	leftovers   *leftovers.Agents
	collector   *collector.Collector
	tally       show.Tally
	engine      *engine.Poller // nil: no engine is watched
	metrics     *show.Metrics
	tracing     *show.Tracing // nil: no spans are wanted
	scrapes     net.Listener  // of the metrics; nil: none
	abort       func()        // ends the process; nil in tests
	recovery    show.Recovery
	damaged     fileCheck
	agentLeft   atomic.Bool // it was told that an agent could not be removed
	scoreFailed atomic.Bool // it was told that a sample could not be scored

	// What other goroutines ask for at any time.
	toGiveUp atomic.Pointer[runfolder.Folder] // folder, for giveUp; nil: there is none yet
	phase    atomic.Value                     // string: what is done at this moment
	running  atomic.Pointer[running]
	ending   atomic.Int32              // 0, endDrain or endStop
	over     atomic.Bool               // nothing is in flight any more
	late     atomic.Bool               // and was interrupted since
	until    atomic.Pointer[time.Time] // when the grace time is over; nil: never
}

// running is there once a collection is at work.
type running struct{ began time.Time }

// leastUnscored is with how many samples a scorer must fail, and with every sample, before
// the run is ended: one that starts slowly may fail on the first.
const leastUnscored = 16

// The values of collection.ending.
const (
	endDrain = 1 + iota
	endStop
)

// open makes the parts of the run; none of them does anything yet.
func (c *collection) open(parts *parts, backends []*agent.Backend) error {
	meta := map[string]string{
		"rollout.config_sha256":  c.info.ConfigSHA256,
		"rollout.server_version": c.info.Servers[0].Version,
	}
	if m := parts.model; m != nil {
		meta["rollout.tokenizer_sha256"], meta["rollout.chat_template_sha256"] = m.TokenizerSHA256, m.ChatTemplateSHA256
	}
	dataset, err := sink.Create(c.folder.Dir, sink.Config{
		Format:        c.config.Output.Format,
		MaxShardBytes: c.config.Output.ShardBytes,
		MaxShardAge:   c.config.Output.ShardAge,
		RunID:         c.info.ID,
		FS:            sink.OSMode(c.folder.Mode),
		Meta:          meta,
		Events:        sink.Events{Committed: c.committed, Sealed: c.metrics.Sealed, Synced: c.metrics.Synced},
	})
	if err != nil {
		return runfolder.OpenError(c.folder.Dir, err)
	}
	// The commit log as recovery left it.
	held, err := sink.ReadLedger(c.folder.Dir)
	if err != nil {
		return runfolder.ReadError(c.folder.Dir, err)
	}
	if c.journal, err = journal.Open(filepath.Join(c.folder.Dir, runfolder.JournalDir), journal.Config{Mode: c.folder.Mode}); err != nil {
		return runfolder.OpenError(c.folder.Dir, err)
	}
	c.leftovers = &leftovers.Agents{RunID: c.info.ID, Clients: c.clients, Keep: c.config.Agent.Keep, Say: c.display.Say, Note: c.display.Note}
	open := c.leftovers.Find(c.journal, held)
	left := c.journal.Resume(held)
	if left == nil && c.retryFailed {
		left = c.journal.Left // of a run in which nothing has failed: nothing is to be done
	}
	c.recovered(dataset.Recovered(), c.journal.Found(), open)
	along, err := runfolder.TurnsHavePrompts(c.config, c.folder.Dir, parts.model)
	if err != nil {
		return err
	}
	var endpoints []collector.Endpoint
	for _, b := range backends {
		endpoints = append(endpoints, collector.Endpoint{Name: b.Client().BaseURL(), Backend: b, MaxInFlight: c.inFlight})
	}
	c.dataset, c.prompter, c.kill = dataset, parts.prompter, parts.kill
	c.collector, err = collector.New(collector.Config{
		RunID:     c.info.ID,
		Endpoints: endpoints,
		Samples:   c.config.Tasks.Samples,
		Limit:     c.config.Tasks.Limit,
		Planned:   c.tasks.Samples,
		Align:     parts.align,
		Require:   parts.require,

		TurnsHavePrompts: along,

		Scorer:         parts.scorer,
		Sink:           dataset,
		Left:           left,
		Journal:        c.journal,
		RetryFailed:    c.retryFailed,
		Retries:        c.config.Run.Retries,
		DataRetries:    c.config.Run.DataRetries,
		MaxFailures:    c.config.Run.MaxFailures,
		MaxUnscored:    max(leastUnscored, c.config.Run.FailOnError.Allowed(c.info.Tasks.Planned)+1) - 1,
		AttemptTimeout: c.config.Run.AttemptTimeout,
		BusyMax:        c.config.Run.BusyPatience,
		Adaptive:       c.config.Server.Adaptive,
		Tail:           c.tail,
		Logger:         c.log.Logger,
		Events: c.tracing.Events(collector.Events{
			SampleFinished: func(s *tokenize.Sample) {
				c.tally.Add(s)
				c.log.Failed(s)
				c.metrics.SampleFinished(s)
			},
			AttemptStarted: c.metrics.AttemptStarted,
			AttemptFinished: func(r collector.Result) {
				c.leftovers.Finished(r.Attempt, r.Err)
				c.metrics.AttemptFinished(r)
			},
			Reattached: func(a collector.Attempt, endpoint string, err error) {
				c.log.Reattached(a, endpoint, err)
				c.metrics.Reattached(a, endpoint, err)
				if err != nil {
					c.leftovers.Finished(a, err)
				}
			},
			ScoreFailed: func(a collector.Attempt, err error) {
				c.log.ScoreFailed(a, err)
				if !c.scoreFailed.Swap(true) { // a scorer that is broken fails on every sample
					c.display.Say("%s #%d could not be scored and has no reward: %v; more like this are only logged, and counted in the summary", tame.Text(a.Task.ID, 40), a.Index, err)
				}
			},
			LimitChanged: func(endpoint string, from, to int, reason string) {
				c.log.LimitChanged(endpoint, from, to, reason)
				c.metrics.LimitChanged(endpoint, from, to, reason)
			},
			RetryWaiting: func(a collector.Attempt, err error, delay time.Duration) {
				c.log.Retry(a, err, delay)
				c.metrics.RetryWaiting(a, collector.Classify(err), delay)
			},
			CloseFailed: func(a collector.Attempt, endpoint string, err error) {
				c.log.AgentLeft(a, endpoint, err)
				if !c.agentLeft.Swap(true) { // a server that dies may leave hundreds
					c.display.Say("agent of %s #%d not removed: %v; more like this are only logged, and counted in the summary", tame.Text(a.Task.ID, 40), a.Index, err)
				}
			},
			EndpointDown: func(endpoint string, err error) {
				c.log.EndpointDown(endpoint, err)
				if err != nil {
					c.display.Say("%s does not answer: %v", endpoint, err)
				} else {
					c.display.Say("%s answers again", endpoint)
				}
			},
			EndpointLost: func(endpoint string, err error) {
				c.log.EndpointLost(endpoint, err)
				c.display.Say("%s is given up: %v", endpoint, err)
			},
		}),
	})
	return err
}

// watchEngine makes what reads the metrics of the inference engine.
func (c *collection) watchEngine() (err error) {
	if len(c.config.Server.EngineMetrics) == 0 {
		return nil
	}
	failing, seen := false, false // of one goroutine
	c.engine, err = engine.New(engine.Config{
		URLs: c.config.Server.EngineMetrics,
		Seen: func(e limit.Engine) {
			seen = true
			if failing {
				failing = false
				c.log.Info("engine metrics back")
				c.display.Say("the engine's metrics can be read again")
			}
			for _, client := range c.clients {
				c.collector.Engine(client.BaseURL(), e)
				c.metrics.Engine(client.BaseURL(), e)
			}
		},
		Failed: func(err error) {
			if failing {
				return
			}
			failing = true
			c.log.Warn("engine metrics", "error", err)
			if seen {
				c.display.Say("the engine's metrics cannot be read any more: for 5 minutes nothing grows without them: %v", err)
			} else {
				c.display.Say("the engine's metrics cannot be read, and bound nothing until they can: %v", err)
			}
		},
	})
	if err != nil {
		return exit.Usagef("server.engine_metrics: %w", err)
	}
	return nil
}

// vitals is where the metrics look. Before the run is at work there is nothing.
func (c *collection) vitals() show.Vitals {
	if c.running.Load() == nil {
		return show.Vitals{}
	}
	return show.Vitals{Collector: c.collector.Stats, Sink: c.dataset.Stats, Dir: c.folder.Dir}
}

// committed tells of a shard.
func (c *collection) committed(commit sink.Commit) {
	c.metrics.Committed(commit)
	c.log.Committed(commit)
	for _, s := range commit.Shards {
		c.display.Event("commit", map[string]any{
			"seq": commit.Seq, "kind": s.Kind.String(), "path": s.Path, "rows": s.Rows, "bytes": s.Bytes, "samples": len(commit.Samples),
		})
	}
}

// recovered tells what an earlier process left in the folder.
func (c *collection) recovered(r sink.Recovery, found journal.Found, open int) {
	if r.Segments == 0 && r.Temporaries == 0 && len(r.Orphans) == 0 && found.Open == 0 && len(found.Torn) == 0 {
		return
	}
	c.log.Info("recovered", "samples", r.Replayed, "commits", r.Commits, "segments", r.Segments, "torn_bytes", r.TornBytes,
		"temporaries", r.Temporaries, "orphans", len(r.Orphans), "open_attempts", open)
	c.recovery = show.Recovery{Samples: r.Replayed, Open: open}
	var parts []string
	if r.Replayed > 0 {
		parts = append(parts, human.Plural(r.Replayed, "finished sample")+" from the write-ahead log")
	}
	if open > 0 {
		parts = append(parts, human.Plural(int64(open), "attempt")+" that an earlier process had in flight, looked for on the servers now")
	}
	if n := len(r.Orphans); n > 0 {
		parts = append(parts, human.Plural(int64(n), "file")+" that no commit names, now in orphans/")
	}
	if parts != nil {
		c.display.Note("recovered: %s", strings.Join(parts, "; "))
	}
}

// run collects, writes what is finished whatever ended it, and says how it was.
func (c *collection) run(ctx context.Context) error {
	c.display.Event("launch", map[string]any{
		"run_id": c.info.ID, "dir": c.folder.Dir, "planned": c.info.Tasks.Planned, "tasks": c.info.Tasks.Tasks,
		"resumed": len(c.info.Invocations) > 1,
	})
	c.log.Info("launch", "run_id", c.info.ID, "resumed", len(c.info.Invocations) > 1, "planned", c.info.Tasks.Planned,
		"tasks", c.info.Tasks.Tasks, "version", version.Read().Version, "config_sha256", c.info.ConfigSHA256)
	for _, e := range c.collector.Stats().Endpoints {
		c.log.LimitChanged(e.Name, 0, e.Limit, "start")
	}
	began := time.Now()
	if c.scrapes != nil {
		defer c.metrics.Serve(ctx, c.scrapes, c.config.Run.MetricsPprof, func() error { return c.vitals().Ready() })()
		c.display.Note("metrics at http://%s/metrics", c.scrapes.Addr())
	}
	c.phase.Store("collecting")
	c.running.Store(&running{began})
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer c.watch(context.WithoutCancel(ctx), stop)() // to the very end: a person may lose patience there too
	runErr, sinkErr := c.work(working)

	c.phase.Store("ending")
	stats, written := c.collector.Stats(), c.dataset.Stats()
	took := time.Since(began)
	tail := c.collector.Tail()
	// A request that failed may have made an agent whose name nobody was told.
	unsure := stats.InfraRetries > 0 || stats.Failed > 0
	if runErr != nil || stats.CloseFailures > 0 || len(c.info.Invocations) > 1 || tail.Cut || unsure {
		stats.CloseFailures = c.leftovers.Sweep(context.WithoutCancel(ctx), stats.CloseFailures, func(name string) bool {
			return slices.ContainsFunc(stats.Endpoints, func(e collector.EndpointStats) bool { return e.Name == name && e.Mute })
		})
	}
	s := show.Summarize(stats, written, c.prompter.Stats(), &c.tally, took)
	s.RunID, s.Dir, s.BadTasks = c.info.ID, c.folder.Dir, c.tasks.Bad
	s.Invocation, s.Recovered, s.OpenFound = len(c.info.Invocations), c.recovery.Samples, c.recovery.Open
	if sinkErr != nil {
		s.Durable = runfolder.Waiting(c.folder.Dir)
	}
	end := c.end(s, c.stopped(runErr, sinkErr))
	s.AddTail(c.tail.String(), stats.Unstarted, tail)
	c.log.Tail(s.Tail)
	s.AddHints(c.config, stats)
	c.log.Status(stats)
	end = c.endDamaged(s, nil, end)
	c.log.Ended(s.Outcome, end)
	last, err := json.Marshal(s)
	if err != nil {
		return errors.Join(err, end) // a struct of plain fields: cannot happen
	}
	damage, err := runfolder.WriteReport(c.folder, last)
	if len(c.damaged.found()) == 0 {
		end = c.endDamaged(s, damage, end)
	}
	if err != nil && end == nil {
		end = exit.With(exit.Storage, err)
	}
	c.display.Finish(s)
	return end
}

// work runs the sink, the collector and the display, and returns when all of them have
// ended.
func (c *collection) work(ctx context.Context) (runErr, sinkErr error) {
	var sinks, helpers errgroup.Group
	// The sink outlives a stop: what is finished is written. So do those who tell.
	unstopped := context.WithoutCancel(ctx)
	sinks.Go(func() error { return c.dataset.Run(unstopped) })

	ctx, stop := context.WithCancel(ctx)
	helping, done := context.WithCancel(unstopped)
	helpers.Go(func() error {
		c.display.Run(helping, c.view)
		return nil
	})
	helpers.Go(func() error {
		c.log.Follow(helping, c.collector.Stats)
		return nil
	})
	helpers.Go(func() error {
		if len(c.info.Invocations) > 1 {
			c.leftovers.Clear(ctx, c.cleared) // not for longer than the run goes on
		}
		return nil
	})
	if c.engine != nil {
		helpers.Go(func() error { return c.engine.Run(helping) }) // nil when it is done
	}
	helpers.Go(func() error {
		machine.BoundMemory(helping, c.inFlight*len(c.clients))
		return nil
	})

	checking, checked := context.WithCancel(ctx)
	helpers.Go(func() error {
		c.checkBeside(checking) // not for longer than there is to collect
		return nil
	})

	runErr = c.collector.Run(ctx, c.snapshot)
	checked()
	c.over.Store(true)
	c.phase.Store("writing what is finished")
	sinkErr = errors.Join(c.dataset.Close(unstopped), c.journal.Close())
	done()
	stop()
	_ = helpers.Wait() // none returns an error
	if err := sinks.Wait(); err != nil {
		sinkErr = err // what Close says as well
	}
	return runErr, sinkErr
}

// view is the state of the run at this moment.
func (c *collection) view() show.View {
	v := show.View{Stats: c.collector.Stats(), Sink: c.dataset.Stats(), Failing: c.tally.Failures(), Recovery: c.recovery}
	v.Draining, v.Stopping = c.ending.Load() >= endDrain, c.ending.Load() == endStop
	if until := c.until.Load(); until != nil {
		v.Until = *until
	}
	return v
}

// snapshot yields the tasks of the run's own copy.
func (c *collection) snapshot(yield func(*collector.Task, error) bool) {
	for t, err := range tasks.Read(c.folder.TasksPath(), nil) {
		if !yield(&t, err) {
			return
		}
	}
}

// cleared tells of the agents of earlier processes that were removed from a server, and of
// what kept others.
func (c *collection) cleared(endpoint string, n int, err error) {
	c.log.Info("leftover agents removed", "endpoint", endpoint, "agents", n)
	if n > 0 {
		c.display.Note("removed %d agents that an earlier process left on %s", n, endpoint)
	}
	if err != nil {
		c.log.Warn("leftover agents not removed", append([]any{"endpoint", endpoint}, show.ErrorAttrs(err)...)...)
		c.display.Say("agents of an earlier process may be left on %s: %v", endpoint, err)
	}
}

// progress logs a send of which nothing is heard, and what its steps say.
func (c *collection) progress(p agent.Progress) {
	c.log.Info("silent send", "sample_key", p.Key, "attempt", p.Attempt, "agent_id", p.AgentID, "server_run_id", p.RunID,
		"steps", p.Steps, "silent_s", p.Silent.Seconds())
}

// tryServers lets every server that has not proved itself in this run make one call of
// the model.
func (c *collection) tryServers(ctx context.Context, parts *parts, backends []*agent.Backend, earlier *runfolder.Earlier) error {
	if c.config.Run.Preflight == config.PreflightConnect {
		return nil
	}
	proven, err := earlier.Proven(c.config.Output.Dir, parts.model)
	if err != nil {
		return err
	}
	task, err := c.tasks.First()
	if err != nil {
		return err
	}
	t, err := preflight.NewTrial(c.config, parts.prompts, collector.Config{Align: parts.align, Require: parts.require}, task, c.display.Note)
	if err != nil {
		return err
	}
	c.phase.Store("trying a call of the model")
	return t.Servers(ctx, backends, c.info.Servers, proven)
}

// statusOldest is how many of the samples in flight a status shows.
const statusOldest = 10

// showStatus answers SIGUSR1: what the run does at this moment, in any display but
// the quiet one.
func (c *collection) showStatus() {
	if c.display.Mode == show.DisplayQuiet {
		return
	}
	phase, _ := c.phase.Load().(string)
	r := c.running.Load()
	if r == nil {
		c.display.Say("status: %s", phase)
		return
	}
	v := c.view()
	v.Now = time.Now()
	c.display.Block(fmt.Sprintf("status of run %s in %s: %s, for %s", c.info.ID, c.folder.Dir, phase, human.Duration(time.Since(r.began))),
		v.Status(c.collector.Oldest(statusOldest)))
}
