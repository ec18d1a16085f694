package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/collect"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/sink/store"
)

func (p *program) collectCmd() *cobra.Command {
	var o collect.Options
	cmd := &cobra.Command{
		Use:   "collect",
		Short: "collect rollouts from agents",
		Long: `Collect rollouts: create an agent for every sample of every task, send the task's
messages, and write the model's prompts and outputs as rows of token ids,
log-probabilities and a loss mask. Agents live on Letta servers (--server), or are a
program that runs once per sample (--harness).

Configure collect with a YAML file (-c), environment variables (ROLLOUT_…) or flags;
rollout config show lists all settings. Before it writes anything, collect checks the
tasks, scores a trial sample and makes a model call per server or engine. If the run would have
no rows or no rewards, collect refuses to start and prints what is missing.`,
		Annotations: exits(exitTable),
		Example: `  rollout collect -c run.yaml
  rollout collect --resume --out run1
  rollout collect --server http://127.0.0.1:8283 --model sglang//models/qwen3 --tasks tasks.jsonl --samples 8 --out run1
  rollout collect --harness opencode --engine http://127.0.0.1:30000 --tasks tasks.jsonl --out run1
  rollout collect --server http://127.0.0.1:8283 --tokenizer models/qwen3 --from-runs tag=prod --from-runs since=24h --out run2
  producer | rollout collect -c run.yaml --stream --json --max-ahead 4 | trainer`,
		Args: exactArgs(),
	}
	f := cmd.Flags()
	f.BoolVar(&o.DryRun, "dry-run", false, "check the settings, tasks, scorer and servers, and print the plan; write nothing")
	f.BoolVar(&o.Resume, "resume", false, "continue the run in the folder, or start one if there is none")
	f.BoolVar(&o.RetryFailed, "retry-failed", false, "collect only the samples that failed or were cut, and cut none of them unless --tail is given. With --from-runs, read only the server runs that could not be read before")
	f.BoolVar(&o.Stream, "stream", false, "accept tasks during the run, from standard input and from the run's socket, and commit each group as soon as it is whole")
	f.BoolVar(&o.Attached, "attached", false, "with --stream: do not read tasks from standard input; stop the run at once when standard input ends")
	f.BoolVar(&o.IgnoreClaim, "unclaimed", false, "ignore a --policy-version that is a number, for example to resume a run whose version was changed with rollout ctl set-version")
	f.BoolVar(&o.Unpaced, "unpaced", false, "with --stream: start groups without regard to --max-ahead, --max-lag and --until-groups, because the client applies them to several collectors")
	f.BoolVar(&o.JSON, "json", false, "print JSON lines: launch, status, commit, warning, done and group events")
	f.BoolVar(&o.Quiet, "quiet", false, "print only errors")
	load := config.AddFlags(cmd, p.getenv, p.environ)
	completeFlag(cmd, "model", p.models(load))
	values(cmd, "tail", cobra.ShellCompDirectiveNoSpace|cobra.ShellCompDirectiveNoFileComp, "wait", "deadline=", "oversample=")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		var earlier *runfolder.Earlier // nil if the run is new
		defer func() { err = errors.Join(err, earlier.Close()) }()
		l, err := load(func(l *config.Loader) (err error) {
			if o.Resume || o.RetryFailed {
				earlier, err = runfolder.Find(l, o.DryRun, o.RetryFailed)
			}
			if who := earlier.Stale(); who != "" && !o.Quiet {
				p.say("%s: the previous process died without releasing its lock (%s)", l.Config.Output.Dir, who)
			}
			if err == nil && earlier != nil {
				err = collect.CheckSameKind(l, &earlier.Info)
			}
			return err
		})
		if l == nil {
			return err
		}
		if store.IsURL(l.Config.Output.Dir) { // the URL can contain credentials
			return exit.Hint(exit.Usagef("output.dir: a store is not supported by collect"), "split the run with rollout plan --out STORE, and collect it with rollout work STORE")
		}
		o.ReadRuns(l.Config)
		if v := &l.Config.Tokens.PolicyVersion; o.IgnoreClaim && v.Claimed {
			*v = config.PolicyVersion{}
		}
		if err == nil {
			err = l.Config.CheckComplete(!o.Stream && earlier == nil).Err()
		}
		if err == nil {
			err = o.Check(l).Err()
		}
		if err != nil {
			if o.Resume && earlier == nil {
				err = exit.Hint(err, l.Config.Output.Dir+" contains no run to resume, so collect would start a new run: is --out the right folder?")
			}
			return err
		}
		return p.collect(cmd.Context(), l, earlier, &o)
	}
	return cmd
}

func (p *program) collect(ctx context.Context, l *config.Loader, earlier *runfolder.Earlier, o *collect.Options) (err error) {
	host := collect.NewHost(p.stdin, p.stdout, p.stderr, p.getenv, p.abort, o)
	defer func() {
		err = host.Close(err)
		p.stdout, p.stderr = host.Stdout, host.Stderr
	}()
	plan, err := collect.NewPlan(ctx, host, l, earlier, o)
	if err != nil {
		return err
	}
	if o.DryRun {
		return plan.Print(ctx)
	}
	opened, err := collect.Open(ctx, plan)
	if err != nil {
		return err
	}
	running, err := collect.Start(opened)
	if err != nil {
		return err
	}
	return running.Run(ctx)
}
