package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/report"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runs"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
)

type reportOptions struct {
	scores string
	html   string
	asJSON bool
	pass   float64
}

func (p *program) reportCmd() *cobra.Command {
	var o reportOptions
	cmd := &cobra.Command{
		Use:   "report RUN",
		Short: "report how a run went",
		Long: `Report the result of a run from its files: the outcome of the samples, failures by class
with remedies, rewards and pass@k, lengths, truncation, grades, times, tokens per second,
concurrency over time, and the slowest samples. report works during a run and after a crash.

RUN is a folder, or the URL of a fleet or of a copied run. The logs, the journal and the
write-ahead log of a fleet are in the spools of its workers, so its report has only the
numbers from the rows. Samples that a damaged partition hides count as remaining.

When collect ends, it writes report.json and report.html to the run folder. The page is
self-contained. Without flags, report prints a short version.`,
		Annotations: exits("Exit status: 0 written, 2 usage error, 6 RUN cannot be read, 7 RUN is not a run, 9 RUN is damaged; the readable part is reported."),
		Example: `  rollout report run1
  rollout report run1 --html report.html
  rollout report run1 --json | jq .coverage
  rollout report s3://bucket/run1`,
		Args: exactArgs("RUN"),
		RunE: func(cmd *cobra.Command, args []string) error { return p.showReport(cmd.Context(), args[0], &o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.scores, "scores", "", scoresUsage)
	f.StringVar(&o.html, "html", "", "write the page to `FILE`; - is standard output")
	f.BoolVar(&o.asJSON, "json", false, "print the whole report as one JSON object")
	f.Float64Var(&o.pass, "pass", report.DefaultPass, "count a reward of at least `X` as a pass, for pass@k")
	return cmd
}

func (p *program) showReport(ctx context.Context, dir string, o *reportOptions) error {
	if o.asJSON && o.html == "-" {
		return exit.Usagef("--json and --html - both write to standard output; use --html FILE")
	}
	if math.IsNaN(o.pass) || math.IsInf(o.pass, 0) {
		return exit.Usagef("--pass: %v is not a finite number", o.pass)
	}
	run, err := p.openRun(ctx, dir)
	if err != nil {
		return err
	}
	run.Scores = o.scores
	r, err := run.Report(ctx, o.pass)
	if err != nil {
		return err
	}
	if err := p.printReport(run, r, o); err != nil {
		return err
	}
	return run.Damage(r.Damage)
}

func (p *program) printReport(run *runs.Run, r *report.Report, o *reportOptions) error {
	switch o.html {
	case "":
	case "-":
		return report.Page(p.stdout, run.Name(), r)
	default:
		if err := runfolder.WriteNamed(o.html, run.FileMode(), func(w io.Writer) error { return report.Page(w, run.Name(), r) }); err != nil {
			return exit.With(exit.Storage, fmt.Errorf("%s: %w", o.html, err))
		}
		p.say("wrote %s", o.html)
		if !o.asJSON {
			return nil
		}
	}
	if o.asJSON {
		return p.printJSON(r)
	}
	termsafe.Fprintf(p.stdout, "%s", termsafe.Own(report.Text(r)))
	if _, err := os.Stat(filepath.Join(run.Location, runfolder.ReportPage)); err != nil {
		p.say("rollout report %s --html FILE writes the full report as a page", format.Shell(run.Location))
	}
	return nil
}
