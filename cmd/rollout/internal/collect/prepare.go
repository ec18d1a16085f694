package collect

import (
	"cmp"
	"context"
	"math"
	"net"
	"path/filepath"
	"slices"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/connect"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/machine"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/preflight"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/show"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/taps"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/version"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/journal"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/limit"
	"github.com/rollout-rl/rollout/collector/reward"
)

// The steps of a collection that run before anything but an empty folder is written. Each step
// stores its results in the collection.

// makeParts builds the parts that the configuration names.
func (c *collection) makeParts(context.Context) (err error) {
	c.phase.Store("checking the tasks")
	if c.taps, err = taps.Open(c.config, c.tappedSince); err != nil {
		return err
	}
	c.atEnd(c.taps.Follow(c.Note))
	if c.parts, err = makeParts(c.config, c.taps.Index(), c.Others()); err != nil {
		return err
	}
	c.atEnd(c.parts.close)
	c.toKill.Store(&c.parts.kill)
	if c.options.RetryFailed && c.loader.ByKey["run.tail"].Given() == "" {
		// --retry-failed asks for these samples, so the tail policy of the run does not cut them.
		c.parts.collector.Tail = collector.Tail{}
	}
	c.identity, err = runfolder.IdentityOf(c.loader, c.parts.model)
	return err
}

// takeTasks reads and checks the tasks. It refuses to continue a run if the tasks, or settings that
// its rows depend on, have changed, and lists every difference.
func (c *collection) takeTasks(context.Context) (err error) {
	c.atEnd(c.giveUp)
	fit := tasks.NewFit(c.parts.agent, c.parts.collector.Scorer)
	skipped := func(bad error) { c.Say("skipped: %v", bad) }
	if c.earlier != nil {
		return c.takeTasksAgain(fit, skipped)
	}
	check := runfolder.NewTaskCheck(c.config, skipped)
	if err := c.taskFile(); err != nil {
		return err
	}
	if c.options.DryRun {
		err = runfolder.CheckNew(c.dir())
	} else {
		var folder *runfolder.Folder
		if folder, err = runfolder.Begin(c.dir(), c.config.Output.Share.FileMode()); err == nil {
			c.takeFolder(folder)
			check.Dir, check.Mode = folder.Dir, folder.Mode
		}
	}
	if err != nil {
		return err
	}
	if c.options.Stream {
		c.tasks, err = runfolder.NoTasks(check.Dir, check.Mode)
		return err
	}
	if c.tasks, err = check.Run(fit.Read(tasks.Read(c.config.Tasks.File, c.program.Stdin))); err != nil {
		return err
	}
	c.first = fit.First()
	return fit.Scorable(string(c.config.Reward.Kind), c.Note)
}

// takeTasksAgain does the work of takeTasks for a run that is continued.
func (c *collection) takeTasksAgain(fit *tasks.Fit, skipped func(error)) error {
	c.takeFolder(c.earlier.Folder)
	if err := c.taskFile(); err != nil {
		return err
	}
	rows, err := runfolder.HasRows(c.dir())
	if err != nil {
		return err
	}
	had, now := c.earlier.Info.Model, c.parts.model
	bad := runfolder.Changes(c.loader, &c.earlier.Info, c.identity, now, rows)
	if bad == nil && !had.Same(now) {
		c.Note("prompts are now rebuilt with tokenizer %s (before: %s)", cmp.Or(runfolder.ShortDigest(now.Tokenizer()), "none"), cmp.Or(runfolder.ShortDigest(had.Tokenizer()), "none"))
	}
	set, more, err := c.earlier.ReadTasks(c.loader, fit, c.program.Stdin, skipped, c.options.Stream)
	if err == nil {
		err = runfolder.Refuse(c.dir(), append(bad, more...))
	}
	if err != nil {
		set.Close()
		return err
	}
	c.tasks, c.first = set, fit.First()
	return nil
}

// tryScorer scores a trial sample of the first task, if a task is known.
func (c *collection) tryScorer(ctx context.Context) error {
	if c.tasks.Tasks == 0 && !c.options.FromRuns { // a stream tries its first task when it arrives
		return nil
	}
	task := &collector.Task{ID: "trial"} // server runs have neither messages nor answers
	switch {
	case c.options.FromRuns:
	case c.first != nil:
		task = c.first
	default:
		var err error
		if task, err = c.tasks.First(); err != nil {
			return err
		}
	}
	return c.tryScorerWith(ctx, task)
}

const phaseScorer = "trying the scorer"

func (c *collection) tryScorerWith(ctx context.Context, task *collector.Task) error {
	if c.parts.collector.Scorer == nil {
		return nil
	}
	c.phase.Store(phaseScorer)
	if err := reward.Try(ctx, c.parts.collector.Scorer, task, c.config.Output.Messages); err != nil {
		return exit.Hint(exit.Usagef("reward.kind %s: the scorer failed on a trial sample of task %s: %w", c.config.Reward.Kind, termsafe.Text(task.ID, 40), err),
			"it must return a finite number for a sample with \"trial\": true; A reward, in cmd/rollout/README.md, lists the fields")
	}
	return nil
}

func (c *collection) takeFolder(f *runfolder.Folder) {
	c.folder = f
	c.toGiveUp.Store(f)
}

// giveUp removes a run that did not begin. If the run is continued, giveUp only clears its folder.
// An interrupt can call it while the folder is being created.
func (c *collection) giveUp() {
	switch folder := c.toGiveUp.Load(); {
	case folder == nil:
	case c.earlier != nil:
		_ = folder.Clear() // the next process would do it; the opener of the folder closes it
	default:
		_ = folder.Abandon() // the lock is released when the process ends
	}
}

// connect creates a client for each server and attaches metrics and spans to its requests.
func (c *collection) connect(ctx context.Context) (err error) {
	c.Metrics = show.NewMetrics(version.Read().Version, c.vitals)
	if c.Tracing, err = show.NewTracing(c.program.Getenv, c.Say); err != nil {
		return err
	}
	c.atEnd(func() { c.Tracing.Stop(ctx) })
	c.clients, err = connect.Clients(c.config, func(text string) { c.Say("%s", text) }, func(endpoint string, cfg *letta.ClientConfig) {
		c.Metrics.Endpoint(endpoint)
		cfg.Observe = c.Metrics.Watch(endpoint)
		c.Tracing.Watch(endpoint, cfg)
	})
	if err != nil {
		return err
	}
	for _, client := range c.clients {
		c.endpoints = append(c.endpoints, client.BaseURL())
		c.atEnd(client.CloseIdle)
	}
	if c.versions, err = makeVersions(c.config, c.options.Stream && !c.options.FromRuns, func(v int32) { c.grouping.seen(v) }, c.VersionUnknown); err != nil {
		return err
	}
	if v := c.config.Tokens.PolicyVersion; c.earlier != nil && !c.options.IgnoreClaim && !v.Claimed && !v.Traces && v.URL.Reveal() == "" {
		if had := c.earlier.Claimed(); had != "" {
			c.Note("policy version %s was claimed for the last invocation only; set --policy-version for this one", had)
		}
	}
	if c.options.FromRuns {
		c.readers = makeReaders(c.parts, c.clients)
		return nil
	}
	cfg := c.parts.agent
	cfg.Prompter, cfg.Progress, cfg.Versions = c.parts.prompter, c.Silent, c.versions
	for _, client := range c.clients {
		b, err := connect.Backend(client, cfg)
		if err != nil {
			return err
		}
		c.backends = append(c.backends, b)
	}
	return nil
}

// askServers checks that every server meets the needs of the run.
func (c *collection) askServers(ctx context.Context) error {
	c.phase.Store("asking the servers")
	again := func(server string, err error, wait time.Duration) {
		c.Say("%s: no valid answer, retrying in %v: %v", server, wait, err)
	}
	servers, err := preflight.Ask(ctx, c.backends, again)
	if c.options.FromRuns {
		servers, err = preflight.AskReaders(ctx, c.readers, again)
	}
	if err != nil {
		if len(c.backends) > 1 && ctx.Err() == nil {
			c.Say("a run starts only if every server answers; to start without one, pass only the others with --server")
		}
		return err
	}
	if err := c.checkNamed(ctx); err != nil {
		return err
	}
	var had *runfolder.Info
	if c.earlier != nil {
		had = &c.earlier.Info
		bad, notices := runfolder.ServerChanges(had.Servers, servers)
		if err := runfolder.Refuse(c.dir(), bad); err != nil {
			return err
		}
		for _, text := range notices {
			c.Say("%s", text)
		}
	}
	c.info, err = runfolder.Describe(c.loader, had, c.identity, c.tasks, servers, c.parts.model)
	if err == nil {
		c.info.Invocations[len(c.info.Invocations)-1].RetryFailed = c.options.RetryFailed
	}
	return err
}

// prepare does the work that can still refuse the run, so that a refused run leaves no folder.
func (c *collection) prepare(ctx context.Context) (err error) {
	planned, lowered := c.info.Tasks.Planned, ""
	if c.options.Stream {
		planned = math.MaxInt32 // unknown
	}
	c.inFlight, lowered = machine.InFlight(c.config, planned, machine.This())
	if lowered != "" && (slices.Min(c.inFlight) < planned || c.loader.ByKey["server.max_in_flight"].Given() != "") {
		c.Note("%s", lowered) // unless a small run needs less than the default anyway
	}
	if len(c.config.Server.EngineMetrics) > 0 {
		read, failed := c.Engine(c.endpoints, func(endpoint string, e limit.Engine) { c.collector.Engine(endpoint, e) })
		if c.engine, err = watchEngines(c.config, read, failed); err != nil {
			return err
		}
	}
	if addr := c.config.Run.MetricsAddr; addr != "" {
		if c.scrapes, err = new(net.ListenConfig).Listen(ctx, "tcp", addr); err != nil {
			return exit.Hint(exit.Usagef("run.metrics_addr: %w", err), "choose another address with --metrics-addr; port 0 picks a free port")
		}
		c.atEnd(func() { _ = c.scrapes.Close() }) // already closed if it was served
	}
	return nil
}

// checkFiles compares every file of the run with its digest if run.check is full. It runs before
// anything is changed.
func (c *collection) checkFiles(ctx context.Context) error {
	if c.config.Run.Check != config.CheckFull || !c.resumed() {
		return nil
	}
	c.phase.Store("reading the files of the run")
	if err := runfolder.CheckFiles(ctx, c.dir(), func(err error) { c.damage.Add(err) }); err != nil {
		return err
	}
	if damage := c.damage.Found(); len(damage) > 0 {
		return runfolder.DamageError(c.dir(), damage)
	}
	return nil
}

// tryServers makes one model call on every server that has not yet proved itself in this run.
func (c *collection) tryServers(ctx context.Context) error {
	if c.tasks.Tasks == 0 { // a stream tries its first task when it arrives
		return nil
	}
	task, err := c.tasks.First()
	if err != nil {
		return err
	}
	return c.tryWith(ctx, task)
}

const phaseTrial = "trying a model call"

func (c *collection) tryWith(ctx context.Context, task *collector.Task) error {
	if c.config.Run.Preflight == config.PreflightConnect || c.options.FromRuns { // it would send a call
		return nil
	}
	proven, err := c.earlier.Proven(c.dir(), c.parts.model)
	if err != nil {
		return err
	}
	judge := collector.Config{Align: c.parts.collector.Align, Require: c.parts.collector.Require}
	t, err := preflight.NewTrial(c.config, c.parts.prompts, judge, task, c.Note)
	if err != nil {
		return err
	}
	c.phase.Store(phaseTrial)
	c.answered, err = t.Servers(ctx, c.backends, c.info.Servers, proven)
	return err
}

// tappedSince returns the earliest time of a call that can belong to the run: the start of this
// process, or of the oldest attempt that an earlier process left open. For server runs it is
// tasks.from_runs since.
func (c *collection) tappedSince() time.Time {
	if runs := c.config.Tasks.FromRuns; runs != nil {
		return runs.Since
	}
	since := time.Now()
	if c.earlier != nil {
		since = openSince(filepath.Join(c.dir(), runfolder.JournalDir), since)
	}
	return since.Add(-taps.Before)
}

// openSince returns when the oldest attempt without an end in the journal began, or now. It ignores
// damage; opening the journal reports it.
func openSince(dir string, now time.Time) time.Time {
	type attempt struct {
		key string
		n   int
	}
	open := map[attempt]time.Time{}
	for e, err := range journal.Read(dir) {
		if err != nil {
			continue
		}
		switch a := (attempt{e.Key, e.Attempt}); e.Op {
		case journal.OpBegin:
			open[a] = e.Time
		case journal.OpEnd:
			delete(open, a)
		default:
		}
	}
	for _, t := range open {
		if t.Before(now) {
			now = t
		}
	}
	return now
}
