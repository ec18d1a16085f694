package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/sink"
)

type collectOptions struct {
	dryRun, asJSON, quiet bool
}

func (p *program) collectCmd() *cobra.Command {
	var o collectOptions
	cmd := &cobra.Command{
		Use:   "collect",
		Short: "collect rollouts: the main job",
		Long: `Collect rollouts: make an agent for every sample of every task, send the task's
messages, and write what the model saw and sampled as rows of token ids,
log-probabilities and a loss mask.

All settings may stand in a file (-c), in the environment (ROLLOUT_…) or on the
command line; rollout config show lists them. Before anything is written, the tasks
are checked and the servers are asked for the model and for token data.

The first interrupt lets the samples in flight finish, the second stops at once;
what is finished is written in both cases.`,
		Annotations: exits(exitTable),
		Example: `  rollout collect -c run.yaml
  rollout collect --server http://127.0.0.1:8283 --model sglang//models/qwen3 --tasks tasks.jsonl --samples 8 --out run1`,
		Args: exactArgs(),
	}
	f := cmd.Flags()
	f.BoolVar(&o.dryRun, "dry-run", false, "check everything, say what would be done, write nothing")
	f.BoolVar(&o.asJSON, "json", false, "print JSON lines: launch, status, commit, warning, done")
	f.BoolVar(&o.quiet, "quiet", false, "print errors only")
	load := addConfigFlags(cmd, p.getenv)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		l, err := load()
		if err != nil {
			return err
		}
		if len(l.bad) == 0 {
			l.bad = l.config.checkComplete()
		}
		if err := l.err(); err != nil {
			return err
		}
		return p.collect(cmd.Context(), l, &o)
	}
	return cmd
}

// A collection is a run of collect: what was checked, and what is at work.
type collection struct {
	config  *config
	display *display
	info    runInfo
	tasks   *taskSet
	clients []*letta.Client
	folder  *runFolder

	prompter  *prompt.Prompter
	dataset   *sink.Dataset
	collector *collector.Collector
	tally     tally
	metrics   *metrics
	scrapes   net.Listener // of the metrics; nil: none
	draining  atomic.Bool
}

func (p *program) collect(ctx context.Context, l *loader, o *collectOptions) error {
	c := &collection{config: l.config, display: p.newDisplay(o.asJSON, o.quiet)}
	parts, err := c.config.parts(p.stderr)
	if err != nil {
		return err
	}
	defer parts.close()
	if err := checkNewRun(c.config.Output.Dir); err != nil {
		return err
	}
	c.tasks, err = checkTasks(readTasks(c.config.Tasks.File, p.stdin), c.config.Tasks.Samples, c.config.Tasks.SkipBad,
		func(bad error) { c.display.say("left out: %v", bad) })
	if err != nil {
		return err
	}
	defer c.tasks.close()
	c.clients, err = c.config.connect(func(text string) { c.display.say("%s", text) })
	if err != nil {
		return err
	}
	defer func() {
		for _, client := range c.clients {
			client.CloseIdle()
		}
	}()
	backends, err := c.config.backends(c.clients)
	if err != nil {
		return err
	}
	servers, err := preflight(ctx, backends)
	if err != nil {
		return err
	}
	if c.info, err = l.describe(c.tasks, servers, parts.model); err != nil {
		return err
	}
	// Before the folder is there: a run that cannot begin leaves none.
	if addr := c.config.Run.MetricsAddr; addr != "" {
		if c.scrapes, err = new(net.ListenConfig).Listen(ctx, "tcp", addr); err != nil {
			return withHint(usageError("run.metrics_addr: %w", err), "give another address with --metrics-addr; port 0 takes a free one")
		}
		defer func() { _ = c.scrapes.Close() }() // closed already where it served
	}
	if o.dryRun {
		return p.dryRun(c, o)
	}

	c.folder, err = createRun(c.config.Output.Dir, c.info, c.tasks)
	if err != nil {
		return err
	}
	err = c.open(parts, backends)
	if err == nil {
		err = c.run(ctx)
	}
	return errors.Join(err, c.folder.close())
}

// planned is the number of samples that the run will take up.
func (c *config) planned(tasks *taskSet) int {
	if c.Tasks.Limit > 0 {
		return min(tasks.samples, c.Tasks.Limit)
	}
	return tasks.samples
}

// open makes the parts of the run; none of them does anything yet.
func (c *collection) open(parts *parts, backends []*letta.Backend) error {
	c.metrics = newMetrics(readVersion().Version, func() collector.Stats { return c.collector.Stats() })
	meta := map[string]string{
		"rollout.config_sha256":  c.info.ConfigSHA256,
		"rollout.server_version": c.info.Servers[0].Version,
	}
	if m := parts.model; m != nil {
		meta["rollout.tokenizer_sha256"], meta["rollout.chat_template_sha256"] = m.TokenizerSHA256, m.ChatTemplateSHA256
	}
	dataset, err := sink.Create(c.folder.dir, sink.Config{
		Format:        parts.format,
		MaxShardBytes: c.config.Output.ShardBytes,
		MaxShardAge:   c.config.Output.ShardAge,
		RunID:         c.info.ID,
		Meta:          meta,
		Events:        sink.Events{Committed: c.committed},
	})
	if err != nil {
		return withExit(exitStorage, err)
	}
	var endpoints []collector.Endpoint
	for _, b := range backends {
		endpoints = append(endpoints, collector.Endpoint{Name: b.Client().BaseURL(), Backend: b, MaxInFlight: c.config.Server.MaxInFlight})
	}
	c.dataset, c.prompter = dataset, parts.prompter
	c.collector, err = collector.New(collector.Config{
		RunID:          c.info.ID,
		Endpoints:      endpoints,
		Samples:        c.config.Tasks.Samples,
		Limit:          c.config.Tasks.Limit,
		Planned:        c.tasks.samples,
		Align:          parts.align,
		Require:        parts.require,
		Prompter:       parts.prompter,
		Scorer:         parts.scorer,
		Sink:           dataset,
		Retries:        c.config.Run.Retries,
		AttemptTimeout: c.config.Run.AttemptTimeout,
		Events: collector.Events{
			SampleFinished: c.tally.add,
			AttemptFinished: func(r collector.Result) {
				c.tally.attempt(r)
				c.metrics.attemptFinished(r)
			},
			CloseFailed: func(a collector.Attempt, endpoint string, err error) {
				c.display.say("agent of %s #%d not removed: %v", cut(a.Task.ID, 40), a.Index, err)
			},
			EndpointDown: func(endpoint string, err error) {
				if err != nil {
					c.display.say("%s does not answer: %v", endpoint, err)
				} else {
					c.display.say("%s answers again", endpoint)
				}
			},
			EndpointLost: func(endpoint string, err error) { c.display.say("%s is given up: %v", endpoint, err) },
		},
	})
	return err
}

// committed tells of a shard.
func (c *collection) committed(commit sink.Commit) {
	c.metrics.committed(commit)
	for _, s := range commit.Shards {
		c.display.event("commit", map[string]any{
			"seq": commit.Seq, "kind": s.Kind.String(), "path": s.Path, "rows": s.Rows, "bytes": s.Bytes, "samples": len(commit.Samples),
		})
	}
}

// run collects, writes what is finished whatever ended it, and says how it was.
func (c *collection) run(ctx context.Context) error {
	c.display.event("launch", map[string]any{
		"run_id": c.info.ID, "dir": c.folder.dir, "planned": c.info.Tasks.Planned, "tasks": c.info.Tasks.Tasks,
	})
	began := time.Now()
	if c.scrapes != nil {
		defer c.metrics.serve(ctx, c.scrapes)()
		c.display.say("metrics at http://%s/metrics", c.scrapes.Addr())
	}
	runErr, sinkErr := c.work(ctx)

	stats, written := c.collector.Stats(), c.dataset.Stats()
	took := time.Since(began)
	if runErr != nil || stats.CloseFailures > 0 {
		stats.CloseFailures = c.sweep(context.WithoutCancel(ctx), stats.CloseFailures)
	}
	s := summarize(stats, written, c.prompter.Stats(), &c.tally, took)
	s.RunID, s.Dir, s.BadTasks = c.info.ID, c.folder.dir, c.tasks.bad
	end := c.end(s, c.stopped(runErr, sinkErr))
	s.Hints = s.hints(c.config, stats, c.tally.busy(stats, took))
	if err := c.folder.writeJSON(reportFile, s); err != nil && end == nil {
		end = withExit(exitStorage, err)
	}
	c.display.finish(s)
	return end
}

// The bounds of sweep: how long it may take, and how long a server may need for a
// create that was given up in the middle.
const (
	sweepTimeout = 30 * time.Second
	sweepPause   = 500 * time.Millisecond
)

// sweep removes the agents that a stop left: those that could not be removed, and
// those whose create was given up before the server had named them. left is how
// many are known to be there; it returns how many still are.
func (c *collection) sweep(ctx context.Context, left int) int {
	if c.config.Agent.Keep {
		return left
	}
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	removed := 0
	for round := range 2 {
		if round > 0 {
			select {
			case <-time.After(sweepPause):
			case <-ctx.Done():
			}
		}
		for _, client := range c.clients {
			n, err := client.Clean(ctx, c.info.ID)
			removed += n
			if err != nil {
				c.display.say("agents may be left on %s: %v", client.BaseURL(), err)
				return max(0, left-removed)
			}
		}
	}
	if removed > 0 {
		c.display.say("removed %d agents that were left on the server", removed)
	}
	return 0
}

// work runs the sink, the collector, the display and the watch over signals, and
// returns when all of them have ended.
func (c *collection) work(ctx context.Context) (runErr, sinkErr error) {
	var sinks, helpers errgroup.Group
	// The sink outlives a stop: what is finished is written.
	unstopped := context.WithoutCancel(ctx)
	sinks.Go(func() error { return c.dataset.Run(unstopped) })

	ctx, stop := context.WithCancelCause(ctx)
	helping, done := context.WithCancel(ctx)
	helpers.Go(func() error {
		c.display.run(helping, func() view {
			return view{Stats: c.collector.Stats(), sink: c.dataset.Stats(), failing: c.tally.failures(), draining: c.draining.Load()}
		})
		return nil
	})
	helpers.Go(func() error {
		boundMemory(helping, c.config.Server.MaxInFlight*len(c.clients))
		return nil
	})
	helpers.Go(func() error {
		watchSignals(helping, c.config.Run.Grace, func() {
			c.display.say("draining: %s; interrupt again to stop now", c.waiting())
			c.draining.Store(true)
			c.collector.Drain()
		}, func(cause error) {
			c.display.say("stopping: %v; what is finished is written", cause)
			stop(cause)
		})
		return nil
	})

	runErr = c.collector.Run(ctx, c.snapshot)
	sinkErr = c.dataset.Close(unstopped)
	done()
	_ = helpers.Wait() // neither returns an error
	stop(nil)
	if err := sinks.Wait(); err != nil {
		sinkErr = err // what Close says as well
	}
	return runErr, sinkErr
}

// stopped is what ended a run before its time: nil where nothing did. A storage that
// failed is named once, also where the run was being interrupted meanwhile.
func (c *collection) stopped(runErr, sinkErr error) error {
	if sinkErr == nil {
		return runErr
	}
	err := withExit(exitStorage, fmt.Errorf("storage failed: %w", sinkErr))
	switch dir := c.folder.dir; {
	case errors.Is(sinkErr, sink.ErrFull):
		err = withHint(err, "make room on the disk, or collect into a folder elsewhere with --out; what is committed in "+dir+" is whole")
	case errors.Is(sinkErr, sink.ErrPermission):
		err = withHint(err, "give yourself the right to write into "+dir+", or collect into another folder with --out; what is committed is whole")
	}
	if runErr == nil || interrupted(runErr) || errors.Is(runErr, collector.ErrStorage) {
		return err
	}
	return errors.Join(runErr, err)
}

// interrupted reports whether a run was ended by its user.
func interrupted(err error) bool {
	return errors.Is(err, errInterrupted) || errors.Is(err, errGrace) || errors.Is(err, context.Canceled)
}

// waiting says what a drain waits for.
func (c *collection) waiting() string {
	s := c.collector.Stats()
	text := fmt.Sprintf("waiting for %d samples in flight", s.InFlight)
	if c.config.Run.Grace > 0 {
		text += ", at most " + humanDuration(c.config.Run.Grace)
	}
	if s.Oldest != nil {
		text += fmt.Sprintf(" (oldest: %s #%d, for %s)", cut(s.Oldest.TaskID, 24), s.Oldest.Index, humanDuration(time.Since(s.Oldest.Started)))
	}
	return text
}

// snapshot yields the tasks of the run's own copy.
func (c *collection) snapshot(yield func(*collector.Task, error) bool) {
	for t, err := range readTasks(c.folder.tasksPath(), nil) {
		if !yield(&t, err) {
			return
		}
	}
}

// end decides what the end of a run means, fills in the summary's word for it, and
// returns the error with its exit code.
func (c *collection) end(s *summary, err error) error {
	switch {
	case err != nil && !interrupted(err):
		s.Outcome, s.Error = "stopped", err.Error()
		return err
	case s.Remaining > 0:
		s.Outcome = "interrupted"
		return withExit(exitInterrupted, fmt.Errorf("interrupted: %d of %d samples remain", s.Remaining, s.Planned))
	}
	s.Outcome = "finished"
	switch allowed := c.config.Run.FailOnError.allowed(s.Planned); {
	case s.Failed > allowed:
		return withHint(withExit(exitTolerance, fmt.Errorf("%d of %d samples failed, %d may", s.Failed, s.Planned, allowed)),
			"rollout inspect "+c.folder.dir+" --failures shows why; --fail-on-error allows some")
	case s.Failed > 0 && c.display.mode == displayQuiet:
		return silentError(exitFailures)
	case s.Failed > 0:
		return withExit(exitFailures, fmt.Errorf("%d of %d samples failed, %d may: rollout inspect %s --failures shows why", s.Failed, s.Planned, allowed, c.folder.dir))
	}
	return nil
}

// dryRun says what would be done.
func (p *program) dryRun(c *collection, o *collectOptions) error {
	slots := c.config.Server.MaxInFlight * len(c.clients)
	if o.asJSON {
		return p.printJSON(map[string]any{
			"event": "plan", "tasks": c.tasks.tasks, "planned": c.info.Tasks.Planned, "bad_tasks": c.tasks.bad, "servers": c.info.Servers,
			"max_in_flight": slots, "dir": c.config.Output.Dir, "format": c.config.Output.Format, "prompts": c.config.Tokens.Prompts,
		})
	}
	fmt.Fprintf(p.stdout, "tasks      %d, %d bad ones left out\n", c.tasks.tasks, c.tasks.bad)
	fmt.Fprintf(p.stdout, "planned    %d samples\n", c.info.Tasks.Planned)
	for _, s := range c.info.Servers {
		fmt.Fprintf(p.stdout, "server     %s, version %s\n", s.URL, s.Version)
	}
	fmt.Fprintf(p.stdout, "model      %s\n", orDash(c.config.Agent.Model))
	fmt.Fprintf(p.stdout, "in flight  %d at most\n", slots)
	fmt.Fprintf(p.stdout, "prompts    %s\n", c.config.Tokens.Prompts)
	fmt.Fprintf(p.stdout, "output     %s, %s\n", c.config.Output.Dir, c.config.Output.Format)
	return nil
}
