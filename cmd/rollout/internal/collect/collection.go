package collect

import (
	"context"
	"encoding/json"
	"errors"
	"io"
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
	"github.com/rollout-rl/rollout/cmd/rollout/internal/taps"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/version"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/journal"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/limit/engine"
	"github.com/rollout-rl/rollout/collector/policy"
	"github.com/rollout-rl/rollout/sink"
)

// A collection is one invocation of collect. This file has its steps in order. The steps before the
// run are in cmd_collect.go, and the end of the run is in exit.go.
type collection struct {
	*show.Observer // display, events and log

	program *Program
	options *Options
	loader  *config.Loader
	config  *config.Config     // loader.Config
	earlier *runfolder.Earlier // the run to continue; nil: a new run

	// Set by the steps before the run.
	parts     *parts
	taps      *taps.Taps // nil: no tap is configured
	identity  runfolder.Identity
	tasks     *runfolder.TaskSet
	first     *collector.Task   // the first task given; nil: read it from the run's copy of the tasks
	folder    *runfolder.Folder // nil: a dry run
	clients   []*letta.Client
	endpoints []string // names of the clients
	backends  []*agent.Backend
	answered  []bool          // by backend: it answered this process's trial call
	readers   []*agent.Reader // with tasks.from_runs; then there are no backends
	info      runfolder.Info
	inFlight  []int          // the most samples in flight, by server
	engine    *engine.Poller // nil: no engine metrics are configured
	versions  *policy.Source // nil: policy versions come only from traces
	scrapes   net.Listener   // listener of the metrics; nil: none

	// Set by open, for the run.
	dataset   *sink.Dataset
	journal   *journal.Journal
	leftovers *leftovers.Agents
	recovery  show.Recovery
	collector *collector.Collector
	grouping  *grouping        // nil: the run does not work by whole groups
	damage    runfolder.Damage // in files that earlier processes committed

	closers []func()

	// Read by other goroutines at any time.
	toGiveUp  atomic.Pointer[runfolder.Folder] // folder, for giveUp; nil: not created yet
	toKill    atomic.Pointer[func()]           // kills the programs of the scorer; nil: none yet
	from      string                           // source of a stream's tasks besides its socket: a path, "-" or ""
	phase     atomic.Value                     // string: the current step
	began     atomic.Pointer[time.Time]        // when the run began; nil: not yet
	unmatched atomic.Bool                      // no server run matches tasks.from_runs
	ending    atomic.Int32                     // 0, endDrain or endStop
	over      atomic.Bool                      // no sample is in flight any more
	late      atomic.Bool                      // and an interrupt came after that
	until     atomic.Pointer[time.Time]        // end of the grace time; nil: none

	unread bool // handOver gave up waiting for a reader
}

// A Program holds everything that a collection uses of its environment.
type Program struct {
	Stdin          io.Reader
	Stdout, Stderr *termsafe.Writer
	Getenv         func(string) string
	Abort          func() // ends the process at once
}

// Run collects: it is the verb collect after its flags are read. earlier is the run to continue;
// nil: a new run.
func Run(ctx context.Context, p *Program, l *config.Loader, earlier *runfolder.Earlier, o *Options) (err error) {
	c := &collection{
		Observer: &show.Observer{Display: show.NewDisplay(p.Stdout, p.Stderr, p.Getenv, o.JSON, o.Quiet), Log: show.DiscardLog()},
		program:  p, options: o, loader: l, config: l.Config, earlier: earlier,
	}
	if !o.DryRun { // a dry run has nothing to save if its reader exits
		signals.OutliveReaders()
	}
	defer func() { err = c.handOver(err) }()
	if o.Attached {
		go c.attached()
	}
	defer signals.OnStatus(c.showStatus)()
	// Until the run starts, an interrupt ends the program, whether it waits for a server or for
	// standard input.
	started := signals.First(func() {
		c.giveUp()
		if kill := c.toKill.Load(); kill != nil {
			(*kill)()
		}
		c.abort("interrupted before the run started")
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
	if o.DryRun {
		return c.dryRun(ctx)
	}
	started() // from here on, an interrupt ends the run in order, and it can be resumed
	for _, step := range []func(context.Context) error{c.tryServers, c.begin, c.open} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return c.run(ctx)
}

func (c *collection) dir() string { return c.config.Output.Dir }

func (c *collection) resumed() bool { return len(c.info.Invocations) > 1 }

// atEnd registers f to be called when the collection ends, in reverse order of registration.
func (c *collection) atEnd(f func()) { c.closers = append(c.closers, f) }

func (c *collection) close() {
	for _, f := range slices.Backward(c.closers) {
		f()
	}
}

// begin creates the run in its folder, or records the changes of this invocation, and opens the
// log.
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

// open opens the dataset and the journal, recovers what earlier processes left in them, and creates
// the collector. It starts nothing.
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
	held, err := sink.ReadLedger(dir) // after recovery
	if err != nil {
		return runfolder.ReadError(dir, err)
	}
	if c.journal, err = journal.Open(filepath.Join(dir, runfolder.JournalDir), journal.Config{Mode: c.folder.Mode}); err != nil {
		return runfolder.OpenError(dir, err)
	}
	c.leftovers = &leftovers.Agents{RunID: c.info.ID, Clients: c.clients, Keep: c.config.Agent.Keep || c.options.FromRuns, Say: c.Say, Note: c.Note}
	c.recovery = c.Recovered(c.dataset.Recovered(), c.journal.Found(), c.leftovers.Find(c.journal, held))
	if err = c.makeCollector(held); err != nil {
		return errors.Join(err, c.journal.Close())
	}
	return nil
}

// makeCollector creates the collector of the run. held is the content of the dataset.
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
	cfg.RetryFailed = c.options.RetryFailed
	if cfg.Left = c.journal.Resume(held); cfg.Left == nil && cfg.RetryFailed {
		cfg.Left = c.journal.Left // nothing has failed, so there is nothing to retry
	}
	cfg.MaxUnscored = maxUnscored(c.config, c.info.Tasks.Planned)
	cfg.Logger, cfg.Events = c.Log.Logger, c.Events(c.leftovers.Finished)
	cfg.Events.SampleDone = func(key string, err error) {
		if err == nil { // leftovers of a sample cut at its deadline are not searched for
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

// run collects, writes all finished samples however the run ended, and reports the result.
func (c *collection) run(ctx context.Context) error {
	began := time.Now()
	c.launch(ctx, began)
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer c.watch(context.WithoutCancel(ctx), stop)() // to the very end, so that an interrupt also works while the run ends
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
		s.Durable = min(int(c.dataset.Stats().Pending), s.Remaining) // in incomplete groups
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

// launch reports the start of the run and starts serving its metrics.
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
	if c.loader.ByKey["reward.kind"].Given() == "" && !c.resumed() && !c.JSON() {
		c.Note("rewards are null: the run has no --reward")
	}
	if c.scrapes != nil {
		c.atEnd(c.Metrics.Serve(ctx, c.scrapes, c.config.Run.MetricsPprof, func() error { return c.vitals().Ready() }))
		c.Note("metrics at http://%s/metrics", c.scrapes.Addr())
	}
	c.phase.Store("collecting")
	c.began.Store(&began)
}

// work runs the sink, the collector and their helpers, and returns when all have ended.
func (c *collection) work(ctx context.Context) (runErr, sinkErr error) {
	var sinks, helpers errgroup.Group
	// The sink and the display outlive a stop, so that finished samples are written.
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
		help(func() { _ = c.engine.Run(helping) }) // nil when ctx is done
	}
	if c.versions != nil {
		help(func() { _ = c.versions.Run(helping) }) // nil when ctx is done
	}
	if c.resumed() {
		help(func() { c.leftovers.Clear(ctx, c.Cleared) }) // ends with the run
		help(func() { c.checkBeside(checking) })           // ends when nothing is left to collect
	}

	c.grouping.work(helping, help)
	runErr = c.collector.Run(ctx, c.snapshot)
	checked()
	c.grouping.over()
	c.over.Store(true)
	if c.collector.Tail().Cut {
		c.dataset.CommitParts() // the rest of their groups is skipped
	}
	c.phase.Store("writing finished samples")
	sinkErr = errors.Join(c.dataset.Close(unstopped), c.journal.Close())
	done()
	stop()
	_ = helpers.Wait() // none returns an error
	if err := sinks.Wait(); err != nil {
		sinkErr = err // Close returns the same error
	}
	return runErr, sinkErr
}

// snapshot yields the tasks in the run's own copy.
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
	if c.options.Stream {
		return c.grouping.intake.Known()
	}
	return tasks.Read(c.folder.TasksPath(), nil)
}

// checkBeside compares the files of earlier processes with their digests during the run, until ctx
// is done. The report at the end of a run reads every file again, so files that checkBeside does
// not reach are checked there.
func (c *collection) checkBeside(ctx context.Context) {
	if c.config.Run.Check == config.CheckFull {
		return // checkFiles did it
	}
	read, err := runfolder.CheckSlowly(ctx, c.folder.Dir, func(err error) { c.Damaged(err, c.damage.Add(err) == 1) })
	if err == nil {
		c.Log.Info("files checked", "bytes", read, "damaged", len(c.damage.Found()))
	}
}

// sweep removes the agents that a run can leave behind if it did not end cleanly, and corrects
// their count in stats.
func (c *collection) sweep(ctx context.Context, stats *collector.Stats, cut bool) {
	// A failed request can have created an agent whose name is unknown.
	unsure := stats.InfraRetries > 0 || stats.Failed > 0
	if !cut && !unsure && stats.CloseFailures == 0 && !c.resumed() {
		return
	}
	stats.CloseFailures = c.leftovers.Sweep(ctx, stats.CloseFailures, func(name string) bool {
		return slices.ContainsFunc(stats.Endpoints, func(e collector.EndpointStats) bool { return e.Name == name && e.Mute })
	})
}

// report writes the report of the run. It returns end, the error of the run. If the report found
// the run's first damage, that comes before end.
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
