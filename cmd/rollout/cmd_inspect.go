package main

import (
	"cmp"
	"fmt"
	"iter"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/human"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/model"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/show"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tame"
	"github.com/rollout-rl/rollout/sink"
)

type inspectOptions struct {
	row, limit              int
	task, tokenizer         string
	failures, asJSON, whole bool
	color                   string
}

func (p *program) inspectCmd() *cobra.Command {
	o := inspectOptions{row: -1}
	cmd := &cobra.Command{
		Use:   "inspect RUN",
		Short: "show the rows of a run",
		Long: `Show the rows of a run: a table; or, with --row, one row with its tokens, span by
span. Tokens that a trainer learns from are coloured by their log-probability, from
green (likely) to red (unlikely); what is context is dim; sampled tokens that are
masked out are underlined. Without colours, masked-out ones stand in parentheses. A
row that is not the continuation of the one before it says where it parted from it,
with both sides.

With --failures, what is not in the data and why: whole samples, and single calls
whose context could not be known, with what was tried.`,
		Annotations: exits("Exit status: 0 shown, 2 no such row, 7 RUN is not a run folder, 6 it cannot be read, 9 it is damaged."),
		Example: `  rollout inspect run1 --limit 20
  rollout inspect run1 --row 3
  rollout inspect run1 --row 3 --tokenizer models/qwen3
  rollout inspect run1 --failures
  rollout inspect run1 --failures --row 0`,
		Args: exactArgs("RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("row") && o.row < 0 {
				return exit.Usagef("--row: %d: rows are counted from 0", o.row)
			}
			return p.inspect(args[0], &o)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.row, "row", -1, "show row `N` of the table, counted from 0")
	f.StringVar(&o.task, "task", "", "rows of the task with this `ID` only; --row counts among them")
	f.IntVar(&o.limit, "limit", 0, "show the first `N` only (default: all)")
	f.BoolVar(&o.failures, "failures", false, "show what failed instead")
	f.StringVar(&o.tokenizer, "tokenizer", "", "with --row: show the tokens as text, by the tokenizer in `DIR`")
	f.BoolVar(&o.whole, "whole", false, "with --row: all tokens, also of long spans; with --failures: all of the error")
	f.BoolVar(&o.asJSON, "json", false, "print JSON lines; with --row all columns of the row")
	f.StringVar(&o.color, "color", "auto", "`WHEN` to colour: auto, always, never")
	values(cmd, "color", cobra.ShellCompDirectiveNoFileComp, "auto", "always", "never")
	return cmd
}

func (p *program) inspect(dir string, o *inspectOptions) error {
	paint, err := p.painter(o.color)
	if err != nil {
		return err
	}
	if err := runfolder.Need(dir); err != nil {
		return err
	}
	log, err := sink.ReadLog(dir)
	if err != nil {
		return runfolder.ReadError(dir, err)
	}
	rows := all(log, sink.KindData, log.Rows, func(r *sink.StoredRow) bool { return o.task == "" || r.TaskID == o.task })
	failures := all(log, sink.KindFailures, log.Failures, func(f *sink.StoredFailure) bool { return o.task == "" || f.TaskID == o.task })
	switch {
	case o.failures && o.row >= 0:
		err = p.inspectFailure(failures, o, paint)
	case o.failures:
		err = p.inspectFailures(failures, log.Done(), o)
	case o.row >= 0:
		err = p.inspectRow(rows, o, paint)
	default:
		err = p.inspectRows(rows, o)
	}
	if err != nil && exit.Code(err) != exit.Usage {
		return runfolder.ReadError(dir, err)
	}
	if err == nil && o.row < 0 && !o.asJSON {
		p.say("%s", runTotals(log))
	}
	return err
}

// runTotals is a line about the whole run, by its commit log.
func runTotals(log *sink.Log) string {
	var rows, failures int64
	var tokens sink.Tokens
	for s := range log.Shards(sink.KindData) {
		rows += s.Rows
		tokens.Total += s.Tokens.Total
		tokens.Trainable += s.Tokens.Trainable
	}
	for s := range log.Shards(sink.KindFailures) {
		failures += s.Rows
	}
	return fmt.Sprintf("the run has %d samples in its data with %s rows, %s tokens, %s of them trained; and %s failure rows",
		len(log.Done()), human.Count(rows), human.Count(tokens.Total), human.Percent(tokens.Trainable, tokens.Total), human.Count(failures))
}

// painter colours stdout as asked.
func (p *program) painter(when string) (show.Painter, error) {
	switch when {
	case "always":
		p.stdout.Colours()
		return true, nil
	case "never":
		return false, nil
	case "auto":
		f, ok := tame.File(p.stdout)
		if !ok || !term.IsTerminal(int(f.Fd())) || p.getenv("NO_COLOR") != "" {
			return false, nil
		}
		p.stdout.Colours()
		return true, nil
	}
	return false, exit.Usagef("--color: %q is not one of auto, always, never", when)
}

// all yields what read gives for every shard of a kind and keep wants. It ends
// after an error.
func all[T any](log *sink.Log, kind sink.Kind, read func(sink.Shard) iter.Seq2[T, error], keep func(T) bool) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for s := range log.Shards(kind) {
			for row, err := range read(s) {
				if (err != nil || keep(row)) && !yield(row, err) || err != nil {
					return
				}
			}
		}
	}
}

func (p *program) inspectRows(rows iter.Seq2[*sink.StoredRow, error], o *inspectOptions) error {
	w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	if !o.asJSON {
		tame.Fprintf(w, "row\tkey\ttask\tindex\tsegment\ttokens\ttrained\treward\tgrade\tstatus\tflags\n")
	}
	n, tokens, trained, forks := 0, 0, 0, 0
	grades, sources := map[string]int{}, map[string]int{}
	for r, err := range rows {
		if err != nil {
			return err
		}
		if o.limit > 0 && n == o.limit {
			break
		}
		t := show.Trained(r.LossMask)
		if o.asJSON {
			if err := p.printJSON(map[string]any{
				"row": n, "sample_key": r.SampleKey, "task_id": r.TaskID, "sample_index": r.SampleIndex,
				"segment_index": r.SegmentIndex, "segment_count": r.SegmentCount, "tokens": len(r.InputIDs), "trained": t,
				"reward": r.Reward, "verification": r.Verification, "prompt_source": r.PromptSource, "status": r.Status, "flags": r.Flags,
			}); err != nil {
				return err
			}
		} else {
			tame.Fprintf(w, "%d\t%s\t%s\t%d\t%d/%d\t%d\t%d\t%s\t%s\t%s\t%s\n", n, show.ShortKey(r.SampleKey), tame.Text(r.TaskID, 32), r.SampleIndex,
				r.SegmentIndex+1, r.SegmentCount, len(r.InputIDs), t, show.Reward(r.Reward), r.Verification, r.Status, show.List(r.Flags))
		}
		n++
		tokens += len(r.InputIDs)
		trained += t
		grades[r.Verification]++
		sources[r.PromptSource]++
		// A column that cannot be read is for verify to report.
		if d, err := show.ReadDivergence(r.Divergence); err != nil || d.Kind != "" {
			forks++
		}
	}
	if o.asJSON {
		return nil
	}
	if err := w.Flush(); err != nil {
		return err
	}
	p.say("%d rows, %s tokens, %s of them trained; %s; prompts from %s; %d forks",
		n, human.Count(int64(tokens)), human.Percent(int64(trained), int64(tokens)), show.Counted(grades), show.Counted(sources), forks)
	return nil
}

func (p *program) inspectFailures(failures iter.Seq2[*sink.StoredFailure, error], done map[string]struct{}, o *inspectOptions) error {
	w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	if !o.asJSON {
		tame.Fprintf(w, "row\tkey\ttask\tindex\tattempt\tclass\treason\tstage\tcall\ttokens\terror\n")
	}
	n := 0
	for f, err := range failures {
		if err != nil {
			return err
		}
		if o.limit > 0 && n == o.limit {
			break
		}
		_, superseded := done[f.SampleKey] // by a later success
		if o.asJSON {
			if err := p.printJSON(map[string]any{
				"row": n, "sample_key": f.SampleKey, "task_id": f.TaskID, "sample_index": f.SampleIndex, "attempt": f.Attempt,
				"class": f.Class, "reason": f.Reason, "stage": f.Stage, "error": f.Error, "call": f.Call,
				"tokens": len(f.OutputIDs), "status": f.Status, "stop_reason": f.StopReason, "superseded": f.Call < 0 && superseded,
			}); err != nil {
				return err
			}
		} else {
			call := "all"
			if f.Call >= 0 {
				call = strconv.Itoa(int(f.Call))
			}
			tame.Fprintf(w, "%d\t%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\t%d\t%s\n", n, show.ShortKey(f.SampleKey), tame.Text(f.TaskID, 32), f.SampleIndex, f.Attempt,
				f.Class, cmp.Or(f.Reason, "-"), f.Stage, call, len(f.OutputIDs), tame.Text(f.Error, show.ErrorWidth(o.whole)))
		}
		n++
	}
	if o.asJSON {
		return nil
	}
	return w.Flush()
}

// speller is how tokens are to be shown.
func (o *inspectOptions) speller() (model.Speller, error) {
	if o.tokenizer == "" {
		return model.Decimal, nil
	}
	return model.LoadSpeller(o.tokenizer)
}

func (p *program) inspectRow(rows iter.Seq2[*sink.StoredRow, error], o *inspectOptions, paint show.Painter) error {
	spell, err := o.speller()
	if err != nil {
		return err
	}
	n := 0
	for r, err := range rows {
		if err != nil {
			return err
		}
		if n == o.row {
			if o.asJSON {
				return p.printJSON(show.ColumnsOf(r))
			}
			return show.WriteRow(p.stdout, r, show.RowView{Number: n, Paint: paint, Spell: spell, Whole: o.whole, Width: p.width()})
		}
		n++
	}
	return exit.Usagef("--row: %d: there are %d rows", o.row, n)
}

func (p *program) inspectFailure(failures iter.Seq2[*sink.StoredFailure, error], o *inspectOptions, paint show.Painter) error {
	spell, err := o.speller()
	if err != nil {
		return err
	}
	n := 0
	for f, err := range failures {
		if err != nil {
			return err
		}
		if n == o.row {
			if o.asJSON {
				return p.printJSON(show.ColumnsOf(f))
			}
			return show.WriteFailure(p.stdout, f, show.RowView{Number: n, Paint: paint, Spell: spell, Whole: o.whole, Width: p.width()})
		}
		n++
	}
	return exit.Usagef("--row: %d: there are %d failure rows", o.row, n)
}

// width is how wide stdout is.
func (p *program) width() int {
	if f, ok := tame.File(p.stdout); ok {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w >= 40 {
			return w
		}
	}
	return 100
}
