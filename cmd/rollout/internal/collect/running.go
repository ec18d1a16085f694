package collect

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/ctl"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/machine"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/scoring"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/show"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/stream"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/version"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
)

// A Running is a run with its collector and its helpers.
type Running struct {
	host      *Host
	plan      *Plan
	opened    *Opened
	collector *collector.Collector
	ends      *ends
	arrivals  *arrivals     // nil if all tasks are known at the start
	socket    *ctl.Listener // accepts requests from rollout ctl; nil if there is none
	began     time.Time
}

// Start creates the collector. It opens the control socket and the tasks of a stream, and restores
// the groups of earlier processes. The work itself starts in Run.
func Start(o *Opened) (*Running, error) {
	r := &Running{host: o.plan.host, plan: o.plan, opened: o}
	err := r.start()
	if err != nil {
		return nil, errors.Join(err, o.journal.Close())
	}
	r.ends = &ends{plan: r.plan, collector: r.collector, stopTasks: r.stopTasks}
	return r, nil
}

func (r *Running) start() error {
	cfg, err := r.configure()
	if err != nil {
		return err
	}
	if r.plan.options.Stream {
		if err := r.openArrivals(&cfg); err != nil {
			return err
		}
	}
	if r.opened.worker != nil {
		r.addWorker(&cfg)
	}
	if g := r.opened.groups; g != nil {
		cfg.Pace = g.pace
		g.tracker.Attach(stream.Hooks{
			Committed:   func(c *sink.Commit) { countEarlier(r.collector, r.opened.held, c) },
			LeftOut:     func(keys ...string) { r.collector.Filter(keys...) },
			Acknowledge: r.opened.local.Acknowledge,
			Whole: func(group string) {
				if r.arrivals != nil {
					r.arrivals.intake.Begun(group)
				}
			},
		})
		if err := g.load(r.plan.dir(), r.knownTasks()); err != nil {
			return err
		}
	}
	if r.collector, err = collector.New(cfg); err != nil {
		return err
	}
	for _, name := range r.opened.answered {
		r.collector.Answered(name)
	}
	return nil
}

// configure returns the collector's configuration for a run whose tasks are known.
func (r *Running) configure() (cfg collector.Config, err error) {
	p, o := r.plan, r.opened
	cfg = p.settings.collector
	if cfg.TurnsHavePrompts, err = runfolder.TurnsHavePrompts(p.config, p.dir(), p.settings.model); err != nil {
		return cfg, err
	}
	cfg.RunID, cfg.Planned, cfg.Endpoints = p.info.ID, p.tasks.Samples, o.endpoints
	cfg.Sink, cfg.Journal = o.dataset, o.journal
	cfg.RetryFailed = p.options.RetryFailed
	if cfg.Left = o.journal.Resume(o.held); cfg.Left == nil && cfg.RetryFailed {
		cfg.Left = o.journal.Left // no sample has failed, so there is nothing to retry
	}
	cfg.MaxUnscored = scoring.MaxUnscored(p.config, p.info.Tasks.Planned)
	cfg.Logger, cfg.Events = r.host.Log.Logger, r.host.Events(o.leftovers.Finished)
	cfg.Events.SampleDone = func(key string, err error) {
		if err == nil { // if the sample failed, keep its agents
			o.leftovers.Done(key)
		}
	}
	cfg.Filtered, cfg.Waiting = o.held.Filtered(), o.held.Waiting()
	return cfg, nil
}

// Run collects the samples and reports the result. No matter how the run ends, it writes all
// finished samples.
func (r *Running) Run(ctx context.Context) error {
	p, o, h := r.plan, r.opened, r.host
	r.began = time.Now()
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer r.ends.watch(stop)() // watch until Run returns, so that an interrupt also works while the run is ending
	r.launch(ctx)              // a reader of this event can interrupt the run
	runErr, sinkErr := r.work(working)

	h.phase.Store("ending")
	took := time.Since(r.began)
	stats, tail := r.collector.Stats(), r.collector.Tail()
	r.sweep(context.WithoutCancel(ctx), &stats, runErr != nil || tail.Cut)
	if runErr != nil || stats.CloseFailures > 0 {
		o.clearHarness(context.WithoutCancel(ctx))
	}
	r.reportDrained(runErr)
	s := show.Summarize(stats, o.dataset.Stats(), p.settings.prompter.Stats(), &h.Tally, took)
	s.RunID, s.Dir, s.BadTasks = p.info.ID, p.rowsAt(), p.tasks.Bad
	s.Invocation, s.Recovered, s.OpenFound = len(p.info.Invocations), o.recovery.Samples, o.recovery.Open
	if sinkErr != nil {
		s.Durable = runfolder.Waiting(p.dir())
	} else {
		s.Durable = min(int(o.dataset.Stats().Pending), s.Remaining) // finished samples in incomplete groups
	}
	end := r.outcome(s, whyStopped(p.dir(), runErr, sinkErr))
	if f := p.options.Fleet; f != nil {
		s.AddStore(f.Requests.Take(), f.Checks)
	}
	s.AddTail(p.tail().String(), stats.Unstarted, tail)
	h.Log.Tail(s.Tail)
	s.AddHints(p.config, stats)
	s.VersionNotes = h.VersionNotes()
	h.Log.Status(stats)
	end = withDamage(p.rowsAt(), s, o.damage.Found(), end)
	h.Log.Ended(s.Outcome, end)
	if o.worker == nil { // the rows of a worker are in the store
		end = r.writeReport(s, end)
	}
	h.Finish(s)
	return h.handOver(end)
}

// launch reports the start of the run and starts the server for its metrics.
func (r *Running) launch(ctx context.Context) {
	p, h := r.plan, r.host
	event := map[string]any{
		"run_id": p.info.ID, "dir": p.dir(), "planned": p.info.Tasks.Planned, "tasks": p.info.Tasks.Tasks, "resumed": p.resumed(),
	}
	if r.arrivals != nil {
		event["stream"], event["socket"] = true, nil
		if r.socket != nil {
			event["socket"] = ctl.Path(p.dir())
			r.arrivals.noteSource()
		}
	}
	h.Event("launch", event)
	h.Log.Info("launch", "run_id", p.info.ID, "resumed", p.resumed(), "planned", p.info.Tasks.Planned,
		"tasks", p.info.Tasks.Tasks, "version", version.Read().Version, "config_sha256", p.info.ConfigSHA256)
	for _, e := range r.collector.Stats().Endpoints {
		h.Log.LimitChanged(e.Name, 0, e.Limit, "start")
	}
	if p.unscored && !p.resumed() && !h.JSON() && p.options.Fleet == nil {
		h.Note("rewards will be null because the run has no --reward")
	}
	if p.scrapes != nil {
		v := show.Vitals{Collector: r.collector.Stats, Sink: r.opened.dataset.Stats, Dir: p.dir()}
		if index := p.taps.Index(); index != nil {
			v.Taps = index.Stats
		}
		h.atClose(h.Metrics.Serve(ctx, p.scrapes, p.config.Run.MetricsPprof, v))
		h.Note("metrics at http://%s/metrics", p.scrapes.Addr())
	}
	h.phase.Store("collecting")
	h.run.Store(&run{showStatus: r.showStatus, orphaned: r.ends.orphaned, impatient: r.ends.impatient})
}

// work runs the sink, the collector and their helpers. It returns when all of them have ended.
func (r *Running) work(ctx context.Context) (runErr, sinkErr error) {
	o, h := r.opened, r.host
	var sinks errgroup.Group
	var helpers sync.WaitGroup
	// The sink and the display continue after a stop, so that finished samples are written.
	unstopped := context.WithoutCancel(ctx)
	sinks.Go(func() error { return o.dataset.Run(unstopped) })

	ctx, stop := context.WithCancel(ctx)
	helping, done := context.WithCancel(unstopped)
	checking, checked := context.WithCancel(ctx)
	help := helpers.Go
	r.help(helping, help)
	if r.plan.resumed() {
		help(func() { o.leftovers.Clear(ctx, h.Cleared) }) // ends when the run ends
		help(func() { r.checkBeside(checking) })           // ends when no samples are left to collect
	}
	if o.groups != nil {
		r.helpGroups(helping, help)
	}
	known := r.snapshot
	if o.worker != nil {
		known = o.worker.Known()
	}
	runErr = r.collector.Run(ctx, known)
	if f := r.plan.options.Fleet; f != nil && errors.Is(runErr, collector.ErrStorage) {
		f.Abandon() // a failed disk must not wait for a store that is away; the spool keeps the finished samples
	}
	checked()
	r.stopTasks(whyStop)
	r.ends.over.Store(true)
	if r.collector.Tail().Cut && o.local != nil {
		o.local.CommitParts() // these groups remain incomplete, because the tail policy skipped their other samples
	}
	h.phase.Store("writing finished samples")
	sinkErr = errors.Join(o.dataset.Close(unstopped), o.journal.Close())
	done()
	stop()
	helpers.Wait()
	if err := sinks.Wait(); err != nil {
		sinkErr = err // Close returns the same error
	}
	return runErr, sinkErr
}

// help starts the helpers that every run needs. The helpers end when ctx is done.
func (r *Running) help(ctx context.Context, help func(func())) {
	p, h := r.plan, r.host
	help(func() { h.Show(ctx, r.view) })
	help(func() { h.Log.Follow(ctx, r.collector.Stats) })
	help(func() { machine.BoundMemory(ctx, machine.Sum(p.inFlight)) })
	if p.engine != nil {
		var names []string
		for _, e := range r.opened.endpoints {
			names = append(names, e.Name)
		}
		read, failed := h.Engine(names, r.collector.Engine)
		help(func() { _ = p.engine.Run(ctx, read, failed) }) // returns nil when ctx is done
	}
	if p.versions != nil {
		var seen func(int32)
		if g := r.opened.groups; g != nil {
			seen = func(version int32) { g.setVersion(version, true) }
		}
		help(func() { _ = p.versions.Run(ctx, seen) }) // returns nil when ctx is done
	}
}

// helpGroups starts the helpers of a run that commits whole groups. The helpers end when ctx is
// done.
func (r *Running) helpGroups(ctx context.Context, help func(func())) {
	g := r.opened.groups
	if v := r.plan.config.Tokens.PolicyVersion; v.Claimed {
		g.pace.SetVersion(v.Version)
	}
	g.report()
	// The callback must not wait for disk I/O. It therefore must not call the intake directly,
	// because the intake holds its lock while it writes tasks to disk.
	unread := make(chan bool, 1)    // holds the latest value
	r.host.OnUnread(func(on bool) { // OnUnread never runs this function concurrently
		select {
		case <-unread:
		default:
		}
		unread <- on
	})
	help(func() { r.holdUnread(ctx, unread) })
	g.tracker.Again()
	help(func() {
		select {
		case <-g.pace.Enough():
			r.stopTasks(whyGroups)
		case <-ctx.Done():
		}
	})
	if r.arrivals == nil {
		return
	}
	if r.socket != nil {
		handler := &control{plan: r.plan, groups: g, collector: r.collector, arrivals: r.arrivals, began: time.Now()}
		help(func() { r.socket.Serve(ctx, handler) })
	}
	// A read from a pipe cannot be interrupted, so do not wait for this goroutine.
	go r.arrivals.read(ctx, r.socket == nil)
}

// holdUnread holds back tasks and samples while too many events are unread. It returns when ctx is
// done.
func (r *Running) holdUnread(ctx context.Context, unread <-chan bool) {
	for {
		select {
		case on := <-unread:
			r.opened.groups.pace.HoldUnread(on)
			if r.arrivals != nil {
				r.arrivals.intake.HoldUnread(on)
			}
			r.host.Log.Warn("events unread", "held", on)
		case <-ctx.Done():
			return
		}
	}
}

// stopTasks makes a stream refuse new tasks. Tasks that have been accepted are still collected.
func (r *Running) stopTasks(why string) {
	if r.arrivals != nil {
		r.arrivals.intake.Stop(why)
	}
}

// snapshot yields the tasks in the run's own copy, and adds each task to the group tracker.
func (r *Running) snapshot(yield func(*collector.Task, error) bool) {
	for t, err := range r.knownTasks() {
		if err == nil && r.opened.groups != nil {
			r.opened.groups.tracker.Task(&t)
		}
		if !yield(&t, err) {
			return
		}
	}
}

// knownTasks yields the tasks that the run had when this process started.
func (r *Running) knownTasks() iter.Seq2[collector.Task, error] {
	if r.arrivals != nil {
		return r.arrivals.intake.Earlier()
	}
	return tasks.Read(r.plan.folder.TasksPath(), nil)
}

// checkBeside compares the files of earlier processes with their digests while the run is
// collecting, until ctx is done. The report at the end of the run rereads every file, so it also
// checks the files that checkBeside has not reached.
func (r *Running) checkBeside(ctx context.Context) {
	if r.plan.config.Run.CheckFull {
		return // NewPlan has compared the files
	}
	const rate = 64 << 20 // bytes per second; takes 5 to 10% of a core and little disk bandwidth
	read, err := runfolder.CheckFiles(ctx, r.plan.dir(), rate, r.opened.damaged)
	switch {
	case err == nil:
		r.host.Log.Info("files checked", "bytes", read, "damaged", len(r.opened.damage.Found()))
	case ctx.Err() == nil:
		r.opened.damaged(err) // the commit log cannot be read
	}
}

// sweep removes the agents that might be left if the run did not end cleanly. It then corrects the
// number of remaining agents in stats.
func (r *Running) sweep(ctx context.Context, stats *collector.Stats, cut bool) {
	// A request that failed might still have created an agent, whose name is unknown.
	unsure := stats.InfraRetries > 0 || stats.Failed > 0
	if !cut && !unsure && stats.CloseFailures == 0 && !r.plan.resumed() {
		return
	}
	stats.CloseFailures = r.opened.leftovers.Sweep(ctx, stats.CloseFailures, func(name string) bool {
		return slices.ContainsFunc(stats.Endpoints, func(e collector.EndpointStats) bool { return e.Name == name && e.Mute })
	})
}

func (r *Running) view() show.View {
	v := show.View{Stats: r.collector.Stats(), Sink: r.opened.dataset.Stats(), Failing: r.host.Tally.Failures(), Recovery: r.opened.recovery}
	if r.plan.config.Reward.Kind != config.RewardNone {
		v.Rewards = new(r.host.Tally.Rewards())
	}
	v.Draining, v.Stopping = r.ends.draining(), r.ends.stopping()
	if until := r.ends.until.Load(); until != nil {
		v.Until = *until
	}
	return v
}

const statusOldest = 10

func (r *Running) showStatus() {
	v := r.view()
	v.Now = time.Now()
	r.host.Block(fmt.Sprintf("status of run %s in %s: %s, started %s ago", r.plan.info.ID, r.plan.dir(), r.host.Phase(), format.Duration(time.Since(r.began))),
		v.Status(r.collector.Oldest(statusOldest)))
}
