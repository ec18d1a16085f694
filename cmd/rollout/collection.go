package main

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/leftovers"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/machine"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/report"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/show"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/signals"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/version"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/journal"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/limit/engine"
	"github.com/rollout-rl/rollout/collector/policy"
	"github.com/rollout-rl/rollout/sink"
)

// A collection is one invocation of collect. The file tells its story from top to bottom;
// the steps before the run are in cmd_collect.go, what its end means in exit.go.
type collection struct {
	*show.Observer // who is told what happens

	program *program
	options *collectOptions
	loader  *config.Loader
	config  *config.Config     // of loader
	earlier *runfolder.Earlier // the run that is continued; nil: it is new

	// What the steps before the run leave.
	parts     *parts
	taps      *taps // nil: none is configured
	identity  runfolder.Identity
	tasks     *runfolder.TaskSet
	first     *collector.Task   // the first task that was given; nil: read it from the copy in the run
	folder    *runfolder.Folder // nil: of a dry run
	clients   []*letta.Client
	endpoints []string // their names
	backends  []*agent.Backend
	answered  []bool          // by backend: it answered the trial call of this process
	readers   []*agent.Reader // where server runs are read: then there are no backends
	info      runfolder.Info
	inFlight  []int          // samples in flight, at most, by server
	engine    *engine.Poller // nil: no engine is watched
	versions  *policy.Source // nil: only traces tell policy versions
	scrapes   net.Listener   // of the metrics; nil: none

	// What is at work in the run.
	dataset   *sink.Dataset
	journal   *journal.Journal
	leftovers *leftovers.Agents
	recovery  show.Recovery
	collector *collector.Collector
	grouping  *grouping        // nil: the run does not work by whole groups
	damage    runfolder.Damage // of files that earlier processes committed

	closers []func()

	// What other goroutines ask for at any time.
	toGiveUp  atomic.Pointer[runfolder.Folder] // folder, for giveUp; nil: there is none yet
	toKill    atomic.Pointer[func()]           // ends the programs of the scorer; nil: there are none yet
	from      string                           // where the tasks of a stream come from besides its socket: a path, "-" or nothing
	phase     atomic.Value                     // string: the current step of the run
	began     atomic.Pointer[time.Time]        // when the run did; nil: it has not
	unmatched atomic.Bool                      // no server run matches tasks.from_runs
	ending    atomic.Int32                     // 0, endDrain or endStop
	over      atomic.Bool                      // nothing is in flight any more
	late      atomic.Bool                      // and was interrupted since
	until     atomic.Pointer[time.Time]        // when the grace time is over; nil: never

	unread bool // handOver has given up
}

// collect checks everything, opens the folder, and runs.
func (p *program) collect(ctx context.Context, l *config.Loader, earlier *runfolder.Earlier, o *collectOptions) (err error) {
	c := &collection{
		Observer: &show.Observer{Display: show.NewDisplay(p.stdout, p.stderr, p.getenv, o.asJSON, o.quiet), Log: show.DiscardLog()},
		program:  p, options: o, loader: l, config: l.Config, earlier: earlier,
	}
	if !o.dryRun { // which has nothing to keep when its reader is gone
		signals.OutliveReaders()
	}
	defer func() { err = c.handOver(err) }()
	if o.attached {
		go c.attached()
	}
	defer signals.OnStatus(c.showStatus)()
	// An interrupt ends the program, whatever it waits for: a server, or a standard input
	// without an end.
	started := signals.First(func() {
		c.giveUp()
		if kill := c.toKill.Load(); kill != nil {
			(*kill)()
		}
		c.abort("interrupted before the run began")
	})
	defer started()
	defer c.close()
	for _, step := range []func(context.Context) error{
		c.makeParts, c.takeTasks, c.checkLimit, c.tryScorer, c.connect, c.askServers, c.prepare, c.checkFiles,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if o.dryRun {
		return c.dryRun(ctx)
	}
	started() // an interrupt ends the trial by itself, and then what is there can be continued
	for _, step := range []func(context.Context) error{c.tryServers, c.begin, c.open} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return c.run(ctx)
}

// dir is the folder of the run.
func (c *collection) dir() string { return c.config.Output.Dir }

// resumed reports whether another process collected into the run before.
func (c *collection) resumed() bool { return len(c.info.Invocations) > 1 }

// atEnd calls f when the collection ends, after what is given to it later.
func (c *collection) atEnd(f func()) { c.closers = append(c.closers, f) }

func (c *collection) close() {
	for _, f := range slices.Backward(c.closers) {
		f()
	}
}

// begin makes the folder that of the run, or writes what the invocation changes in it, and
// opens the log.
func (c *collection) begin(context.Context) (err error) {
	if c.earlier != nil {
		err = c.folder.Update(c.info, c.tasks)
	} else {
		err = c.folder.Create(c.info, c.tasks)
	}
	if err != nil {
		return err
	}
	c.phase.Store("opening the folder")
	clearSocket(c.folder.Dir)
	if c.Log, err = show.OpenLog(c.folder.Dir, c.info.LastLog(), c.folder.Mode, c.config.Secrets()); err != nil {
		return exit.With(exit.Storage, err)
	}
	c.atEnd(func() { _ = c.Log.Close() }) // every line was written
	return nil
}

// open opens dataset and journal, looks at what earlier processes left in them, and makes
// the collector. Nothing is at work yet.
func (c *collection) open(context.Context) (err error) {
	dir := c.folder.Dir
	cfg := c.parts.sink
	cfg.RunID, cfg.FS, cfg.Events = c.info.ID, sink.OSMode(c.folder.Mode), c.SinkEvents()
	cfg.Meta = map[string]string{
		"rollout.config_sha256":     c.info.ConfigSHA256,
		"rollout.server_version":    c.info.Servers[0].Version,
		runfolder.VersionsSourceKey: c.info.VersionsSource(),
	}
	if m := c.parts.model; m != nil {
		cfg.Meta["rollout.tokenizer_sha256"], cfg.Meta["rollout.chat_template_sha256"] = m.TokenizerSHA256, m.ChatTemplateSHA256
	}
	if c.grouping = c.newGrouping(); c.grouping != nil {
		c.grouping.ofSink(&cfg)
	}
	if c.dataset, err = sink.Create(dir, cfg); err != nil {
		return runfolder.OpenError(dir, err)
	}
	held, err := sink.ReadLedger(dir) // what recovery left
	if err != nil {
		return runfolder.ReadError(dir, err)
	}
	if c.journal, err = journal.Open(filepath.Join(dir, runfolder.JournalDir), journal.Config{Mode: c.folder.Mode}); err != nil {
		return runfolder.OpenError(dir, err)
	}
	c.leftovers = &leftovers.Agents{RunID: c.info.ID, Clients: c.clients, Keep: c.config.Agent.Keep || c.options.reads, Say: c.Say, Note: c.Note}
	c.recovery = c.Recovered(c.dataset.Recovered(), c.journal.Found(), c.leftovers.Find(c.journal, held))
	if err = c.makeCollector(held); err != nil {
		return errors.Join(err, c.journal.Close())
	}
	return nil
}

// makeCollector makes the collector of the run. held is what the dataset has.
func (c *collection) makeCollector(held *sink.Ledger) (err error) {
	cfg := c.parts.collector
	if cfg.TurnsHavePrompts, err = runfolder.TurnsHavePrompts(c.config, c.folder.Dir, c.parts.model); err != nil {
		return err
	}
	cfg.RunID, cfg.Planned = c.info.ID, c.tasks.Samples
	for i := range c.endpoints {
		cfg.Endpoints = append(cfg.Endpoints, c.endpoint(i))
	}
	cfg.Sink, cfg.Journal = c.dataset, c.journal
	cfg.RetryFailed = c.options.retryFailed
	if cfg.Left = c.journal.Resume(held); cfg.Left == nil && cfg.RetryFailed {
		cfg.Left = c.journal.Left // nothing has failed, so there is nothing to retry
	}
	cfg.MaxUnscored = maxUnscored(c.config, c.info.Tasks.Planned)
	cfg.Logger, cfg.Events = c.Log.Logger, c.Events(c.leftovers.Finished)
	cfg.Events.SampleDone = func(key string, err error) {
		if err == nil { // one that is cut at its deadline is not looked for
			c.leftovers.Done(key)
		}
	}
	cfg.Filtered, cfg.Waiting = held.Filtered(), held.Waiting()
	if c.grouping != nil {
		c.grouping.held = held
		if err := c.grouping.ofCollector(&cfg); err != nil {
			return err
		}
	}
	c.collector, err = collector.New(cfg)
	return err
}

// run collects, writes what is finished whatever ended it, and says how it was.
func (c *collection) run(ctx context.Context) error {
	began := time.Now()
	c.launch(ctx, began)
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer c.watch(context.WithoutCancel(ctx), stop)() // to the very end: a person may lose patience there too
	runErr, sinkErr := c.work(working)

	c.phase.Store("ending")
	took := time.Since(began)
	stats, tail := c.collector.Stats(), c.collector.Tail()
	c.sweep(context.WithoutCancel(ctx), &stats, runErr != nil || tail.Cut)
	c.grouping.drained(runErr)
	s := show.Summarize(stats, c.dataset.Stats(), c.parts.prompter.Stats(), &c.Tally, took)
	s.RunID, s.Dir, s.BadTasks = c.info.ID, c.folder.Dir, c.tasks.Bad
	s.Invocation, s.Recovered, s.OpenFound = len(c.info.Invocations), c.recovery.Samples, c.recovery.Open
	if sinkErr != nil {
		s.Durable = runfolder.Waiting(c.folder.Dir)
	} else {
		s.Durable = min(int(c.dataset.Stats().Pending), s.Remaining) // of groups that are not whole
	}
	end := c.end(s, c.stopped(runErr, sinkErr))
	s.AddTail(c.tail().String(), stats.Unstarted, tail)
	c.Log.Tail(s.Tail)
	s.AddHints(c.config, stats)
	s.VersionNotes = c.VersionNotes()
	c.Log.Status(stats)
	end = c.endDamaged(s, c.damage.Found(), end)
	c.Log.Ended(s.Outcome, end)
	end = c.report(s, end)
	c.Finish(s)
	return c.handOver(end)
}

// launch tells that the run begins, and serves its metrics from now on.
func (c *collection) launch(ctx context.Context, began time.Time) {
	event := map[string]any{
		"run_id": c.info.ID, "dir": c.folder.Dir, "planned": c.info.Tasks.Planned, "tasks": c.info.Tasks.Tasks, "resumed": c.resumed(),
	}
	c.grouping.launch(event)
	c.Event("launch", event)
	c.Log.Info("launch", "run_id", c.info.ID, "resumed", c.resumed(), "planned", c.info.Tasks.Planned,
		"tasks", c.info.Tasks.Tasks, "version", version.Read().Version, "config_sha256", c.info.ConfigSHA256)
	for _, e := range c.collector.Stats().Endpoints {
		c.Log.LimitChanged(e.Name, 0, e.Limit, "start")
	}
	if c.scrapes != nil {
		c.atEnd(c.Metrics.Serve(ctx, c.scrapes, c.config.Run.MetricsPprof, func() error { return c.vitals().Ready() }))
		c.Note("metrics at http://%s/metrics", c.scrapes.Addr())
	}
	c.phase.Store("collecting")
	c.began.Store(&began)
}

// work runs the sink, the collector and those who help and tell, and returns when all of
// them have ended.
func (c *collection) work(ctx context.Context) (runErr, sinkErr error) {
	var sinks, helpers errgroup.Group
	// The sink outlives a stop: what is finished is written. So do those who tell.
	unstopped := context.WithoutCancel(ctx)
	sinks.Go(func() error { return c.dataset.Run(unstopped) })

	ctx, stop := context.WithCancel(ctx)
	helping, done := context.WithCancel(unstopped)
	checking, checked := context.WithCancel(ctx)
	help := func(f func()) {
		helpers.Go(func() error {
			f()
			return nil
		})
	}
	help(func() { c.Show(helping, c.view) })
	help(func() { c.Log.Follow(helping, c.collector.Stats) })
	help(func() { machine.BoundMemory(helping, machine.Sum(c.inFlight)) })
	if c.engine != nil {
		help(func() { _ = c.engine.Run(helping) }) // nil when it is done
	}
	if c.versions != nil {
		help(func() { _ = c.versions.Run(helping) }) // nil when it is done
	}
	if c.resumed() {
		help(func() { c.leftovers.Clear(ctx, c.Cleared) }) // not for longer than the run goes on
		help(func() { c.checkBeside(checking) })           // not for longer than there is to collect
	}

	c.grouping.work(helping, help)
	runErr = c.collector.Run(ctx, c.snapshot)
	checked()
	c.grouping.over()
	c.over.Store(true)
	if c.collector.Tail().Cut {
		c.dataset.CommitParts() // the rest of their groups is skipped
	}
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

// snapshot yields the tasks of the run's own copy.
func (c *collection) snapshot(yield func(*collector.Task, error) bool) {
	for t, err := range c.known() {
		if err == nil && c.grouping != nil {
			c.grouping.tracker.Task(&t)
		}
		if !yield(&t, err) {
			return
		}
	}
}

// known yields the tasks that the run had when this process began.
func (c *collection) known() iter.Seq2[collector.Task, error] {
	if c.options.stream {
		return c.grouping.intake.Known()
	}
	return tasks.Read(c.folder.TasksPath(), nil)
}

// checkBeside compares the files of earlier processes with their digests while the run goes
// on, until ctx is done. The report reads every file once more at the end of a run, so what
// is not reached by then is not passed over.
func (c *collection) checkBeside(ctx context.Context) {
	if c.config.Run.Check == config.CheckFull {
		return // it was done before
	}
	read, err := runfolder.CheckSlowly(ctx, c.folder.Dir, func(err error) { c.Damaged(err, c.damage.Add(err) == 1) })
	if err == nil {
		c.Log.Info("files checked", "bytes", read, "damaged", len(c.damage.Found()))
	}
}

// sweep removes the agents that a run which did not simply go well may have left, and
// corrects the count of them in stats.
func (c *collection) sweep(ctx context.Context, stats *collector.Stats, cut bool) {
	// A request that failed may have made an agent whose name nobody was told.
	unsure := stats.InfraRetries > 0 || stats.Failed > 0
	if !cut && !unsure && stats.CloseFailures == 0 && !c.resumed() {
		return
	}
	stats.CloseFailures = c.leftovers.Sweep(ctx, stats.CloseFailures, func(name string) bool {
		return slices.ContainsFunc(stats.Endpoints, func(e collector.EndpointStats) bool { return e.Name == name && e.Mute })
	})
}

// report writes the report of the run. It returns end, the end of the run, or what the
// report found damaged first.
func (c *collection) report(s *show.Summary, end error) error {
	damage, err := runfolder.WriteReport(c.folder, func(r *report.Report) (json.RawMessage, error) {
		if c.parts.collector.Scorer != nil {
			s.AddUnscored(r.Rewards.Scored, r.Rewards.Unscored)
		}
		return json.Marshal(s)
	})
	if len(c.damage.Found()) == 0 {
		for _, err := range damage {
			c.Log.Error("damage", "error", err)
		}
		end = c.endDamaged(s, damage, end)
	}
	if err != nil && end == nil {
		return exit.With(exit.Storage, err)
	}
	return end
}
