package main

import (
	"cmp"
	"context"
	"errors"
	"net"
	"time"

	"github.com/spf13/cobra"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/machine"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/preflight"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/show"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/signals"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tame"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/version"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/sink"
)

type collectOptions struct {
	dryRun, asJSON, quiet bool
	resume, retryFailed   bool
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
are checked, and every server makes one call of the model: a run that would have no
rows is refused, with what to add.

The first interrupt lets the samples in flight finish, the second stops at once, and
the third leaves at once; what is finished is kept in all three cases. SIGUSR1 prints
what is going on. Whatever ended a run, kill -9 included, --resume --out DIR continues
it: its settings and tasks are those of the run, unless they are given again. What a
row depends on must stay: agent.*, tokens.*, reward.*, output.messages, and the tasks,
of which there may be more, in any order. Everything else may change, and so may
tokens.* while the run has no row yet; a tokenizer may be added to a run that had none.`,
		Annotations: exits(exitTable),
		Example: `  rollout collect -c run.yaml
  rollout collect --resume --out run1
  rollout collect --server http://127.0.0.1:8283 --model sglang//models/qwen3 --tasks tasks.jsonl --samples 8 --out run1`,
		Args: exactArgs(),
	}
	f := cmd.Flags()
	f.BoolVar(&o.dryRun, "dry-run", false, "check everything, say what would be done, write nothing")
	f.BoolVar(&o.resume, "resume", false, "continue the run in the folder, or begin it where there is none")
	f.BoolVar(&o.retryFailed, "retry-failed", false, "continue the run in the folder with the samples that have failed or were cut, and only those; none is cut unless --tail is given again")
	f.BoolVar(&o.asJSON, "json", false, "print JSON lines: launch, status, commit, warning, done")
	f.BoolVar(&o.quiet, "quiet", false, "print errors only")
	load := config.AddFlags(cmd, p.getenv, p.environ)
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
			return err
		})
		if err != nil {
			return err
		}
		if len(l.Bad) == 0 {
			l.Bad = l.Config.CheckComplete()
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

func (p *program) collect(ctx context.Context, l *config.Loader, earlier *runfolder.Earlier, o *collectOptions) error {
	c := &collection{config: l.Config, display: show.NewDisplay(p.stdout, p.stderr, p.getenv, o.asJSON, o.quiet), log: show.DiscardLog(), abort: p.abort, retryFailed: o.retryFailed}
	if c.tail = c.config.Run.Tail; o.retryFailed && l.ByKey["run.tail"].Given() == "" {
		c.tail = collector.Tail{}
	}
	c.phase.Store("checking the tasks")
	defer signals.OnStatus(c.showStatus)()
	parts, err := makeParts(c.config, p.stderr)
	if err != nil {
		return err
	}
	defer parts.close()
	id, err := runfolder.IdentityOf(l, parts.model)
	if err != nil {
		return err
	}
	// An interrupt ends the program, whatever it waits for: a server, or a standard input
	// without an end.
	started := signals.First(func() {
		c.giveUp(earlier)
		p.say("interrupted before the run began")
		p.abort()
	})
	defer started()
	defer c.giveUp(earlier)
	agent, err := agentConfig(c.config)
	if err != nil {
		return err
	}
	c.fit = tasks.NewFit(agent, parts.scorer)
	if err := p.takeTasks(c, l, earlier, o, id, parts.model); err != nil {
		return err
	}
	c.metrics = show.NewMetrics(version.Read().Version, c.vitals)
	if c.tracing, err = show.NewTracing(p.getenv, c.display.Say); err != nil {
		return err
	}
	defer c.tracing.Stop(ctx)
	c.clients, err = connectWatched(c.config, func(text string) { c.display.Say("%s", text) }, func(endpoint string, cfg *letta.ClientConfig) {
		c.metrics.Endpoint(endpoint)
		cfg.Observe = c.metrics.Watch(endpoint)
		c.tracing.Watch(endpoint, cfg)
	})
	if err != nil {
		return err
	}
	defer func() {
		for _, client := range c.clients {
			client.CloseIdle()
		}
	}()
	backends, err := makeBackends(c.config, c.clients, parts.prompter, c.progress)
	if err != nil {
		return err
	}
	c.phase.Store("asking the servers")
	servers, err := preflight.Ask(ctx, backends, func(server string, err error, wait time.Duration) {
		c.display.Say("%s does not answer as it should, trying again in %v: %v", server, wait, err)
	})
	if err != nil {
		return err
	}
	var had *runfolder.Info
	if earlier != nil {
		had = &earlier.Info
		bad, notices := runfolder.ServerChanges(had.Servers, servers)
		if err := runfolder.Refuse(c.config.Output.Dir, bad); err != nil {
			return err
		}
		for _, text := range notices {
			c.display.Say("%s", text)
		}
	}
	if c.info, err = runfolder.Describe(l, had, id, c.tasks, servers, parts.model); err != nil {
		return err
	}
	c.info.Invocations[len(c.info.Invocations)-1].RetryFailed = o.retryFailed
	planned, lowered := c.info.Tasks.Planned, ""
	c.inFlight, lowered = machine.InFlight(c.config, planned, len(c.clients), machine.This())
	if lowered != "" && (c.inFlight < planned || l.ByKey["server.max_in_flight"].Given() != "") {
		c.display.Note("%s", lowered) // but not that a small run needs less than the default
	}
	if err := c.watchEngine(); err != nil {
		return err
	}
	// Before the folder is there: a run that cannot begin leaves none.
	if addr := c.config.Run.MetricsAddr; addr != "" {
		if c.scrapes, err = new(net.ListenConfig).Listen(ctx, "tcp", addr); err != nil {
			return exit.Hint(exit.Usagef("run.metrics_addr: %w", err), "give another address with --metrics-addr; port 0 takes a free one")
		}
		defer func() { _ = c.scrapes.Close() }() // closed already where it served
	}
	if err := c.checkFirst(ctx); err != nil {
		return err
	}
	if o.dryRun {
		return p.dryRun(c, o, earlier != nil)
	}
	started() // an interrupt ends the trial by itself, and then what is there can be continued
	if err := c.tryServers(ctx, parts, backends, earlier); err != nil {
		return err
	}
	if earlier != nil {
		err = c.folder.Update(c.info, c.tasks, had)
	} else {
		err = c.folder.Create(c.info, c.tasks)
	}
	if err != nil {
		return err
	}
	c.phase.Store("opening the folder")
	if c.log, err = show.OpenLog(c.folder.Dir, c.info.LastLog(), c.folder.Mode, c.config.Secrets()); err != nil {
		return exit.With(exit.Storage, err)
	}
	defer func() { _ = c.log.Close() }() // every line was written
	if err = c.open(parts, backends); err == nil {
		return c.run(ctx)
	}
	if c.journal != nil {
		err = errors.Join(err, c.journal.Close())
	}
	return err
}

// takeTasks reads and checks the tasks. A run that is continued and that they, or
// what its rows depend on, do not fit is refused, with every difference.
func (p *program) takeTasks(c *collection, l *config.Loader, earlier *runfolder.Earlier, o *collectOptions, id runfolder.Identity, model *runfolder.Model) (err error) {
	if earlier != nil {
		c.takeFolder(earlier.Folder)
		rows, err := runfolder.HasRows(c.config.Output.Dir)
		if err != nil {
			return err
		}
		bad := runfolder.Changes(l, &earlier.Info, id, model, rows)
		if had := earlier.Info.Model; bad == nil && !had.Same(model) {
			c.display.Note("prompts are rebuilt with tokenizer %s from now on, and with %s before", cmp.Or(runfolder.ShortDigest(model.Tokenizer()), "none"), cmp.Or(runfolder.ShortDigest(had.Tokenizer()), "none"))
		}
		tasks, more, err := earlier.ReadTasks(l, c.fit, p.stdin, c.skipped)
		if err == nil {
			err = runfolder.Refuse(c.config.Output.Dir, append(bad, more...))
		}
		if err != nil {
			tasks.Close()
			return err
		}
		c.tasks = tasks
		return nil
	}
	check := runfolder.NewTaskCheck(c.config, c.skipped)
	if o.dryRun {
		err = runfolder.CheckNew(c.config.Output.Dir)
	} else {
		var folder *runfolder.Folder
		if folder, err = runfolder.Begin(c.config.Output.Dir, c.config.Output.Share.FileMode()); err == nil {
			c.takeFolder(folder)
			check.Dir, check.Mode = folder.Dir, folder.Mode
		}
	}
	if err != nil {
		return err
	}
	if c.tasks, err = check.Run(c.fit.Read(tasks.Read(c.config.Tasks.File, p.stdin))); err != nil {
		return err
	}
	return c.fit.Scorable(string(c.config.Reward.Kind), c.display.Note)
}

// skipped tells of a task that is left out.
func (c *collection) skipped(bad error) { c.display.Say("left out: %v", bad) }

func (c *collection) takeFolder(f *runfolder.Folder) {
	c.folder = f
	c.toGiveUp.Store(f)
}

// giveUp leaves nothing of a run that did not begin, and gives the folder of every other
// one up.
func (c *collection) giveUp(earlier *runfolder.Earlier) {
	switch folder := c.toGiveUp.Load(); { // an interrupt asks while the folder is made
	case folder == nil:
	case earlier != nil:
		_ = folder.Clear() // the next process would; the folder is closed by who opened it
	default:
		_ = folder.Abandon() // the lock goes with the process at the latest
	}
}

// dryRun says what would be done.
func (p *program) dryRun(c *collection, o *collectOptions, resumed bool) error {
	var held *sink.Ledger
	if resumed {
		var err error
		if held, err = sink.ReadLedger(c.config.Output.Dir); err != nil {
			return runfolder.ReadError(c.config.Output.Dir, err)
		}
	}
	committed, failed := held.Counts()
	slots := c.inFlight * len(c.clients)
	if o.asJSON {
		return p.printJSON(map[string]any{
			"event": "plan", "tasks": c.tasks.Tasks, "planned": c.info.Tasks.Planned, "bad_tasks": c.tasks.Bad, "servers": c.info.Servers,
			"max_in_flight": slots, "dir": c.config.Output.Dir, "format": c.config.Output.Format, "prompts": c.config.Tokens.Prompts, "preflight": c.config.Run.Preflight,
			"resumed": resumed, "committed": committed, "failed": failed,
		})
	}
	tame.Fprintf(p.stdout, "tasks      %d, %d bad ones left out\n", c.tasks.Tasks, c.tasks.Bad)
	tame.Fprintf(p.stdout, "planned    %d samples", c.info.Tasks.Planned)
	if resumed {
		tame.Fprintf(p.stdout, ", %d of them committed, %d failed", committed, failed)
	}
	tame.Fprintf(p.stdout, "\n")
	for _, s := range c.info.Servers {
		tame.Fprintf(p.stdout, "server     %s, version %s\n", s.URL, s.Version)
	}
	tame.Fprintf(p.stdout, "model      %s\n", cmp.Or(c.config.Agent.Model, "-"))
	tame.Fprintf(p.stdout, "in flight  %d at most\n", slots)
	tame.Fprintf(p.stdout, "prompts    %s\n", c.config.Tokens.Prompts)
	if c.config.Run.Preflight == config.PreflightCall {
		tame.Fprintf(p.stdout, "preflight  one call of the model per server, when the run begins; rollout doctor makes it now\n")
	}
	tame.Fprintf(p.stdout, "output     %s, %s\n", c.config.Output.Dir, c.config.Output.Format)
	return nil
}
