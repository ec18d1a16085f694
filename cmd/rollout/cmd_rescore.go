package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/report"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/rescore"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runs"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
)

// scoresUsage describes the flag --scores of the verbs that read rows.
const scoresUsage = "use the rewards of the scores set `NAME`, such as 0001, or of the collection if it is \"collected\" (default: the newest complete set of rollout rescore)"

func (p *program) rescoreCmd() *cobra.Command {
	o := rescore.Options{Say: p.say, Stderr: p.stderr}
	cmd := &cobra.Command{
		Use:   "rescore RUN",
		Short: "score the samples of a run again",
		Long: `Score the samples of a run again, without inference. The scorer gets the same fields as
during the collection. The text is decoded from the tokens of the rows. Fields that the rows do
not have, such as exit_code and workdir of a harness, are null.

rescore adds a scores set to the run and does not change its rows. inspect, report, view, export and
the Python package then use the rewards of the newest complete set; --scores NAME selects
another one. A sample that cannot be scored gets no reward. If the process is interrupted, the
same command continues. With --out, rescore leaves RUN as it is and creates a new run.

If a setting is not given, rescore uses the setting of the run. collector/reward/README.md
describes the kinds of --reward, and what a scorer of your own gets.`,
		Annotations: exits("Exit status: 0 the scorer failed on no sample, 2 usage error, 3 it failed on some samples, within --fail-on-error, 4 on more than that, 6 storage failed, 7 RUN is not a run folder or has no rows, or NEW already contains a run, 8 another process uses RUN, 9 RUN is damaged, 130 interrupted."),
		Example: `  rollout rescore run1 --reward exact
  rollout rescore run1 --reward python:score.py:score
  rollout rescore run1 --reward python-group:rank.py:rank
  rollout rescore run1 -c rewards.yaml
  rollout rescore run1 --reward number --out run2`,
		Args: exactArgs("RUN"),
	}
	cmd.Flags().StringVar(&o.Out, "out", "", "create the new run `NEW` instead of adding scores to RUN")
	load := config.AddFlags(cmd, p.getenv, p.environ, "reward.kind", "reward.min_std", "tokens.tokenizer", "run.fail_on_error")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		context.AfterFunc(ctx, stop) // a second signal ends the program at once
		return p.rescore(ctx, args[0], load, &o)
	}
	return cmd
}

// rescore scores the run in dir again. The function load loads the settings.
func (p *program) rescore(ctx context.Context, dir string, load func(...func(*config.Loader) error) (*config.Loader, error), o *rescore.Options) (err error) {
	run, err := p.openRun(ctx, dir)
	if err != nil {
		return err
	}
	hint := "copy the run to a folder and score it there"
	if run.Fleet != nil {
		hint = "rollout export and rollout import make a run in a folder, but without the answers of the tasks"
	}
	if err := run.NeedFolder("rescore", hint); err != nil {
		return err
	}
	if err := needFolder("--out", o.Out, "create the run in a folder, and copy it"); err != nil {
		return err
	}
	if sameFolder(dir, o.Out) {
		return exit.Hint(exit.Usagef("--out: %s is RUN itself", o.Out), "pass a new folder; without --out, rescore adds a scores set to RUN")
	}
	l, err := load(func(l *config.Loader) error {
		l.FromRun(run.Info.Config, "tasks", "harness", "tokens", "reward", "output", "run")
		return nil
	})
	if err != nil {
		return err
	}
	folder, err := runfolder.OpenRun(dir, l.Config.Output.Share.FileMode())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	o.Meta = func(log *sink.Log) (map[string]string, error) {
		h, err := header([]*runs.Log{{Log: log}}, run.Info.ID)
		return h.Meta, err
	}
	result, err := rescore.Run(ctx, folder, &run.Info, l, o)
	if _, ok := errors.AsType[*collector.ScorerError](err); ok {
		return exit.Hint(err, "fix the scorer ("+string(l.Config.Reward.Kind)+") and try again")
	}
	if err != nil {
		return err
	}
	if o.Out == "" {
		if _, err := runfolder.WriteReport(folder, func(*report.Report) (json.RawMessage, error) { return nil, nil }); err != nil {
			return err
		}
	}
	return p.rescored(l.Config, dir, o.Out, result)
}

// sameFolder reports whether both paths are the same folder.
func sameFolder(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

// rescored prints what a rescore did. It returns an error if the scorer failed on some samples.
func (p *program) rescored(c *config.Config, dir, out string, r *rescore.Result) error {
	parts := []string{format.Count(int64(r.Scored)) + " scored"}
	if r.Scored > 0 {
		parts[0] += fmt.Sprintf(", mean reward %.4g", r.Mean())
	}
	if n := r.Unscored + r.Failures; n > 0 {
		parts = append(parts, format.Count(int64(n))+" not scored")
	}
	if r.Filtered > 0 {
		parts = append(parts, format.Count(int64(r.Filtered))+" with keep=false")
	}
	rate := format.Rate(r.Rate()) + " samples/s"
	if r.Earlier > 0 {
		rate += "; " + format.Count(int64(r.Earlier)) + " by an earlier process"
	}
	what := "scores set " + r.Set + " of " + dir
	if out != "" {
		what = "created " + out
	}
	p.say("%s: %s: %s (%s)", what, format.Plural(int64(r.Samples), "sample"), strings.Join(parts, ", "), rate)
	if r.Failures == 0 {
		return nil
	}
	allowed := c.Run.FailOnError.Allowed(r.Samples)
	err := fmt.Errorf("%d of %d samples could not be scored (allowed: %d)", r.Failures, r.Samples, allowed)
	if out == "" {
		out = dir
	}
	code := exit.Failures
	if r.Failures > allowed {
		code = exit.Tolerance
	}
	return exit.Hint(exit.With(code, err), "rollout inspect "+format.Shell(out)+" --row N shows the reason, under \"reward\"; to allow some unscored samples, set --fail-on-error")
}
