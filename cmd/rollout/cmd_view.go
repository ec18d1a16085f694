package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/report"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runs"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/view"
)

type viewOptions struct {
	out, tokenizer, scores string
	follow                 bool
}

func (p *program) viewCmd() *cobra.Command {
	var o viewOptions
	cmd := &cobra.Command{
		Use:   "view RUN",
		Short: "show a run in a browser",
		Long: `Show a run in a browser: the report, all samples with filters, and each sample with its
conversation and its tokens. Samples of a group, and the rows of a forked sample, can be compared.

view prints the URL of the page and serves it on 127.0.0.1 until an interrupt. The URL contains a
random token: other users of the machine cannot read the run without the URL. With --out, view
writes the page to one file instead. The file contains the report and at most 200 samples, and
lists the tasks whose samples it lacks.

A sample is listed when its shard is committed; the page shows how many samples still wait for their
shard. --follow shows a run that is being collected. If a part of the run is damaged, the page shows
the rest, and the report on the page lists the damage.`,
		Annotations: exits("Exit status: 0 written, or after an interrupt, 2 usage error, 5 no port can be opened, 6 RUN cannot be read, 7 RUN is not a run folder, 9 RUN is damaged; the readable part is shown."),
		Example: `  rollout view run1
  rollout view run1 --follow
  rollout view run1 --out page.html
  rollout view s3://bucket/run1`,
		Args: exactArgs("RUN"),
		RunE: func(cmd *cobra.Command, args []string) error { return p.view(cmd.Context(), args[0], &o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.out, "out", "", "write the page to `FILE` instead of serving it; - is standard output")
	f.BoolVar(&o.follow, "follow", false, "show new samples as they are committed")
	f.StringVar(&o.scores, "scores", "", scoresUsage)
	f.StringVar(&o.tokenizer, "tokenizer", "", "show tokens as text with the tokenizer in `DIR`, or as ids if it is \"none\" (default: the run's tokenizer)")
	return cmd
}

func (p *program) view(ctx context.Context, location string, o *viewOptions) error {
	if o.out != "" && o.follow {
		return exit.Usagef("--out and --follow cannot be combined: a file does not change")
	}
	run, err := p.openRun(ctx, location)
	if err != nil {
		return err
	}
	run.Scores = o.scores
	tokenizer, err := p.tokenizer(run, o.tokenizer)
	if err != nil {
		return err
	}
	v := view.Open(run, tokenizer)
	if o.out != "" {
		return p.writeView(ctx, run, v, o.out)
	}
	server := &view.Server{View: v, Follow: o.follow}
	listener, err := server.Listen(ctx)
	if err != nil {
		return err
	}
	p.say("open %s", server.URL())
	ctx, stop := interruptible(ctx)
	defer stop()
	return server.Serve(ctx, listener)
}

func (p *program) writeView(ctx context.Context, run *runs.Run, v *view.View, path string) error {
	if err := v.Refresh(ctx); err != nil {
		return err
	}
	var damage []error
	var failed error // not a problem of the file
	write := func(w io.Writer) (left *report.LeftOut, _ error) {
		left, damage, failed = v.Write(ctx, w)
		return left, failed
	}
	if path == "-" {
		if _, err := write(termsafe.Raw(p.stdout)); err != nil {
			return err
		}
		return run.Damage(damage)
	}
	err := runfolder.WriteNamed(path, run.FileMode(), func(w io.Writer) error {
		left, err := write(w)
		if err == nil && left.Samples > 0 {
			p.say("%s contains %s; %s left out", path, format.Plural(int64(left.Kept), "sample"), format.Plural(int64(left.Samples), "sample"))
		}
		return err
	})
	switch {
	case failed != nil:
		return failed
	case err != nil:
		return exit.With(exit.Storage, fmt.Errorf("%s: %w", path, err))
	}
	p.say("wrote %s", path)
	return run.Damage(damage)
}
