package main

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/machine"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/preflight"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/show"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tame"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/version"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/limit"
	"github.com/rollout-rl/rollout/collector/reward"
)

type collectOptions struct {
	dryRun, asJSON, quiet bool
	resume                bool
	stream, attached      bool // tasks arrive during the run; standard input belongs to the parent process
	asked                 bool // --stream was given
	reads                 bool // the run reads server runs (tasks.from_runs) and drives no agents
	unclaimed             bool // ignore the claimed policy version: set-version has replaced it
	retryFailed           bool // collect the failed samples instead of the remaining ones
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
are checked, the scorer scores a trial sample, and every server makes one call of
the model: a run that would have no rows, or no rewards, is refused, with what to add.

The first interrupt lets the samples in flight finish, the second stops at once, and
the third leaves at once; what is finished is kept in all three cases. SIGUSR1 prints
what is going on. Whatever ended a run, kill -9 included, --resume --out DIR continues
it: its settings and tasks are those of the run, unless they are given again. What a
row depends on must stay: agent.*, tokens.*, reward.*, output.messages, and the tasks,
of which there may be more, in any order; with --stream or --until-groups also the
number of samples. Everything else may change, and so may tokens.* while the run has no
row yet; a tokenizer may be added to a run that had none.

With --stream the run stays and takes tasks as they come, one JSON object per line, as
in a file of tasks: from standard input, whose end is the end of the tasks, or, where
that is a terminal or /dev/null, from its socket alone (rollout ctl RUN add) until
rollout ctl RUN drain. A task may have a deadline, a time or seconds from the moment
when it is accepted, pauses and resumes included: samples without a reply are cut then.
Each group is committed as soon as it is whole. A bad line is told and passed over; a
task that comes again is the same task. What was accepted is in the folder: --resume
finishes it, --resume --stream takes more as well.

With --from-runs no agent is made: server runs that another program drove (a product,
curl, an evaluation) are read from what the server keeps of them: the tokens from their
traces, the prompts too. Each is a sample and a group of its own, known by its id: what
the run has is not read again, also with --resume. Nothing is sent, changed or deleted.
What a server run does not give is a failure with its reason: no_trace, not_native (no
token ids), compacted, deleted, unfinished, no_prompt (the agent was edited since), or
agent_error where it went wrong itself. A run that has not ended is left out, or, with
--follow, waited for.`,
		Annotations: exits(exitTable),
		Example: `  rollout collect -c run.yaml
  rollout collect --resume --out run1
  rollout collect --server http://127.0.0.1:8283 --model sglang//models/qwen3 --tasks tasks.jsonl --samples 8 --out run1
  rollout collect --server http://127.0.0.1:8283 --tokenizer models/qwen3 --from-runs tag=prod --from-runs since=24h --out run2
  producer | rollout collect -c run.yaml --stream --json --max-ahead 4 | trainer`,
		Args: exactArgs(),
	}
	f := cmd.Flags()
	f.BoolVar(&o.dryRun, "dry-run", false, "check everything, say what would be done, write nothing")
	f.BoolVar(&o.resume, "resume", false, "continue the run in the folder, or begin one if there is none")
	f.BoolVar(&o.retryFailed, "retry-failed", false, "continue the run with only the samples that failed or were cut; nothing is cut again unless --tail is given; of --from-runs: read the server runs again that could not be read, and no others")
	f.BoolVar(&o.stream, "stream", false, "take tasks as they come, from standard input and from the socket of the run, and commit each group as soon as it is whole")
	f.BoolVar(&o.attached, "attached", false, "with --stream: standard input carries no tasks, and its end stops the run at once")
	f.BoolVar(&o.unclaimed, "unclaimed", false, "no number is taken as --policy-version: set-version has told an earlier process another")
	f.BoolVar(&o.asJSON, "json", false, "print JSON lines: launch, status, commit, warning, done, and of groups more")
	f.BoolVar(&o.quiet, "quiet", false, "print errors only")
	load := config.AddFlags(cmd, p.getenv, p.environ)
	completeFlag(cmd, "model", p.models(load))
	values(cmd, "tail", cobra.ShellCompDirectiveNoSpace|cobra.ShellCompDirectiveNoFileComp, "wait", "deadline=", "oversample=")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		var earlier *runfolder.Earlier // nil: the run is new
		defer func() { err = errors.Join(err, earlier.Close()) }()
		l, err := load(func(l *config.Loader) (err error) {
			if o.resume || o.retryFailed {
				earlier, err = runfolder.Find(l, o.dryRun, o.retryFailed)
			}
			if who := earlier.Stale(); who != "" && !o.quiet {
				p.say("%s: was left behind by a process that died (%s)", l.Config.Output.Dir, who)
			}
			if err == nil && earlier != nil {
				err = checkReads(l, &earlier.Info)
			}
			return err
		})
		if err != nil {
			return err
		}
		o.readRuns(l.Config)
		if v := &l.Config.Tokens.PolicyVersion; o.unclaimed && v.Claimed {
			*v = config.PolicyVersion{}
		}
		if len(l.Bad) == 0 {
			l.Bad = l.Config.CheckComplete(!o.stream && earlier == nil)
		}
		if len(l.Bad) == 0 {
			l.Bad = p.checkGroups(&o, l)
		}
		if err := l.Err(); err != nil {
			if o.resume && earlier == nil {
				err = exit.Hint(err, l.Config.Output.Dir+" holds no run that could be continued, and one that begins needs these: is --out the right folder?")
			}
			return err
		}
		return p.collect(cmd.Context(), l, earlier, &o)
	}
	return cmd
}

// The steps of a collection that run before anything but an empty folder is written. Each step
// stores its results in the collection.

// makeParts builds the parts that the configuration names.
func (c *collection) makeParts(context.Context) (err error) {
	c.phase.Store("checking the tasks")
	if c.taps, err = openTaps(c.config, c.tappedSince); err != nil {
		return err
	}
	c.atEnd(c.taps.follow(c.Note))
	if c.parts, err = makeParts(c.config, c.taps.index(), c.Others()); err != nil {
		return err
	}
	c.atEnd(c.parts.close)
	c.toKill.Store(&c.parts.kill)
	if c.options.retryFailed && c.loader.ByKey["run.tail"].Given() == "" {
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
	skipped := func(bad error) { c.Say("left out: %v", bad) }
	if c.earlier != nil {
		return c.takeTasksAgain(fit, skipped)
	}
	check := runfolder.NewTaskCheck(c.config, skipped)
	if err := c.taskFile(); err != nil {
		return err
	}
	if c.options.dryRun {
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
	if c.options.stream {
		c.tasks, err = runfolder.NoTasks(check.Dir, check.Mode)
		return err
	}
	if c.tasks, err = check.Run(fit.Read(tasks.Read(c.config.Tasks.File, c.program.stdin))); err != nil {
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
		c.Note("prompts are rebuilt with tokenizer %s from now on, and with %s before", cmp.Or(runfolder.ShortDigest(now.Tokenizer()), "none"), cmp.Or(runfolder.ShortDigest(had.Tokenizer()), "none"))
	}
	set, more, err := c.earlier.ReadTasks(c.loader, fit, c.program.stdin, skipped, c.options.stream)
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
	if c.tasks.Tasks == 0 && !c.options.reads { // a stream tries its first task when it arrives
		return nil
	}
	task := &collector.Task{ID: "trial"} // server runs have neither messages nor answers
	switch {
	case c.options.reads:
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
		return exit.Hint(exit.Usagef("reward.kind %s: the scorer fails on a trial sample of task %s, before the run: %w", c.config.Reward.Kind, tame.Text(task.ID, 40), err),
			"it must return a finite number for the sample, which has \"trial\": true; README, A reward, lists the fields")
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
	if c.Tracing, err = show.NewTracing(c.program.getenv, c.Say); err != nil {
		return err
	}
	c.atEnd(func() { c.Tracing.Stop(ctx) })
	c.clients, err = connectWatched(c.config, func(text string) { c.Say("%s", text) }, func(endpoint string, cfg *letta.ClientConfig) {
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
	if c.versions, err = makeVersions(c.config, c.options.stream && !c.options.reads, func(v int32) { c.grouping.seen(v) }, c.VersionUnknown); err != nil {
		return err
	}
	if v := c.config.Tokens.PolicyVersion; c.earlier != nil && !c.options.unclaimed && !v.Claimed && !v.Traces && v.URL.Reveal() == "" {
		if had := c.earlier.Claimed(); had != "" {
			c.Note("policy version %s was said of the last invocation, and is not assumed of this one: --policy-version says what samples now", had)
		}
	}
	if c.options.reads {
		c.readers = makeReaders(c.parts, c.clients)
		return nil
	}
	cfg := c.parts.agent
	cfg.Prompter, cfg.Progress, cfg.Versions = c.parts.prompter, c.Silent, c.versions
	c.backends, err = makeBackends(cfg, c.clients)
	return err
}

// askServers checks that every server meets the needs of the run.
func (c *collection) askServers(ctx context.Context) error {
	c.phase.Store("asking the servers")
	again := func(server string, err error, wait time.Duration) {
		c.Say("%s does not answer as it should, trying again in %v: %v", server, wait, err)
	}
	servers, err := preflight.Ask(ctx, c.backends, again)
	if c.options.reads {
		servers, err = preflight.AskReaders(ctx, c.readers, again)
	}
	if err != nil {
		if len(c.backends) > 1 && ctx.Err() == nil {
			c.Say("every server is needed to begin: to go on without one, give the others with --server")
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
		c.info.Invocations[len(c.info.Invocations)-1].RetryFailed = c.options.retryFailed
	}
	return err
}

// prepare does the work that can still refuse the run, so that a refused run leaves no folder.
func (c *collection) prepare(ctx context.Context) (err error) {
	planned, lowered := c.info.Tasks.Planned, ""
	if c.options.stream {
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
			return exit.Hint(exit.Usagef("run.metrics_addr: %w", err), "give another address with --metrics-addr; port 0 takes a free one")
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

const phaseTrial = "trying a call of the model"

func (c *collection) tryWith(ctx context.Context, task *collector.Task) error {
	if c.config.Run.Preflight == config.PreflightConnect || c.options.reads { // it would send a call
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
