package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"path/filepath"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/model"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runs"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/show"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/bpe"
)

type inspectOptions struct {
	rowFilter
	scores                  string
	row, limit              int
	tokenizer               string
	failures, asJSON, whole bool
	color                   string

	searched bool    // true after all rows have been searched
	damage   []error // the errors of damaged partitions and shards, whose rows are not shown
	// unshown contains, by sample key, the counts of the calls that the server's answer does not
	// show. Samples without such calls have no entry.
	unshown map[string]tokenize.Unshown
}

// filtered reports whether the numbers of rows count only the selected rows.
func (o *inspectOptions) filtered() bool { return o.task+o.group+o.key != "" }

// A rowFilter selects rows. An empty field selects all rows.
type rowFilter struct {
	task, group string
	key         string
	met         bool // true after a row of the task has been found
}

func (f *rowFilter) wants(task, group, key string) bool {
	f.met = f.met || f.task == task
	return (f.task == "" || f.task == task) && (f.group == "" || f.group == group) && (f.key == "" || f.key == key)
}

func (p *program) inspectCmd() *cobra.Command {
	o := inspectOptions{row: -1}
	cmd := &cobra.Command{
		Use:   "inspect RUN",
		Short: "show the rows of a run",
		Long: `Show a run's rows as a table. With --row, show one row and its tokens, span by span.
Trained tokens are colored by log-probability, from green (likely) to red (unlikely).
Context is dim, and masked sampled tokens are underlined (in parentheses without color).
A forked row shows where its prompt differs from the previous row, with both versions.

If a tap recorded calls that are missing from the server's answers, inspect counts them:
retries, calls that failed at the engine, calls that were cut off, and summaries of a
compaction. --key prints the counts below the table, and --row next to the row. No row
contains the tokens of these calls.

--failures shows failed samples, and single calls without a known context, with the
reason and the sources that were tried.

RUN is a folder, or the URL of a fleet or of a copied run. inspect reads only the columns
and the part of a shard that it shows. It compares the digests of opened shards with the
commit log. Use verify to check all shards and all invariants.

Tokens are shown as text with the run's tokenizer, if it is still at its recorded path
with the recorded digest.`,
		Annotations: exits("Exit status: 0 shown, 2 usage error or no such row, 6 RUN cannot be read, 7 RUN is not a run, 9 RUN is damaged; the readable rows are shown."),
		Example: `  rollout inspect run1 --limit 20
  rollout inspect run1 --row 3
  rollout inspect run1 --key d4e5cf24-0 --row 0
  rollout inspect run1 --row 3 --tokenizer models/qwen3
  rollout inspect run1 --failures
  rollout inspect run1 --failures --row 0
  rollout inspect s3://bucket/run1 --key d4e5cf24-0`,
		Args: exactArgs("RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("row") && o.row < 0 {
				return exit.Usagef("--row: must be ≥ 0, got %d", o.row)
			}
			return p.inspect(cmd.Context(), args[0], &o)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.row, "row", -1, "show row `N` of the table, counted from 0")
	f.StringVar(&o.scores, "scores", "", scoresUsage)
	f.StringVar(&o.task, "task", "", "show only rows of the task with this `ID`; --row N counts only these rows")
	f.StringVar(&o.group, "group", "", "show only rows of the group with this `ID`; --row N counts only these rows")
	f.StringVar(&o.key, "key", "", "show only rows of the sample with this short or full `KEY`; --row N counts only these rows")
	f.IntVar(&o.limit, "limit", 0, "show only the first `N` rows or failures (default: all)")
	f.BoolVar(&o.failures, "failures", false, "show failures instead of rows")
	f.StringVar(&o.tokenizer, "tokenizer", "", "with --row: show tokens as text with the tokenizer in `DIR`, or as ids if it is \"none\" (default: the run's tokenizer)")
	f.BoolVar(&o.whole, "whole", false, "with --row: show all tokens of long spans; with --failures: show the full error")
	f.BoolVar(&o.asJSON, "json", false, "print JSON lines; with --row, print all columns of the row")
	f.StringVar(&o.color, "color", "auto", "`WHEN` to use color: auto, always, never")
	values(cmd, "color", cobra.ShellCompDirectiveNoFileComp, "auto", "always", "never")
	return cmd
}

func (p *program) inspect(ctx context.Context, dir string, o *inspectOptions) error {
	paint, err := p.painter(o.color)
	if err != nil {
		return err
	}
	run, err := p.openRun(ctx, dir)
	if err != nil {
		return err
	}
	run.Scores = o.scores
	logs, damage, err := run.Logs(ctx)
	if err != nil {
		return err
	}
	o.damage = damage
	part, err := o.narrow(logs)
	if err != nil {
		if o.searched && damage != nil { // the damaged part can contain the sample
			err = run.Damage(damage)
		}
		return err
	}
	o.unshown = runs.Unshown(logs)
	rows := found(part, sink.KindData, o, (*runs.Log).Facts, func(r *sink.StoredRow) bool { return o.wants(r.TaskID, r.GroupID, r.SampleKey) })
	failures := found(part, sink.KindFailures, o, (*runs.Log).FailureFacts, func(f *sink.StoredFailure) bool { return o.wants(f.TaskID, f.GroupID, f.SampleKey) })
	switch {
	case o.failures && o.row >= 0:
		err = inspectOne(p, run, o, paint, place(logs, sink.KindFailures, failures, o), (*runs.Log).Failure, show.WriteFailure)
	case o.failures:
		err = p.inspectFailures(failures, doneIn(logs), o)
	case o.row >= 0:
		err = inspectOne(p, run, o, paint, place(logs, sink.KindData, rows, o), (*runs.Log).Row, show.WriteRow)
	default:
		err = p.inspectRows(rows, o)
	}
	switch {
	case err != nil && exit.Code(err) != exit.Usage:
		return run.Error(err)
	case o.damage != nil && (err == nil || o.searched): // the damaged part can contain the row
		return run.Damage(o.damage)
	}
	if o.task != "" && !o.met && (err == nil || o.searched) {
		p.reportNoRows(o.task, run, logs)
	}
	if err != nil || o.row >= 0 || o.asJSON {
		return err
	}
	if n := o.unshown[o.key]; n != (tokenize.Unshown{}) {
		p.say("the tap recorded calls that are missing from the server's answers: %s", n)
	}
	p.say("%s", runTotals(logs))
	return nil
}

// narrow returns only the parts of the commit logs that can contain the requested rows. It replaces a
// short key in o.key with the full key.
func (o *inspectOptions) narrow(logs []*runs.Log) (parts []*runs.Log, err error) {
	if o.key == "" {
		return logs, nil
	}
	whole := ""
	for _, log := range logs {
		var commits []sink.Commit
		for i := range log.Commits {
			for _, s := range log.Commits[i].Samples {
				if s.Key != o.key && show.ShortKey(s.Key) != o.key {
					continue
				}
				if whole != "" && s.Key != whole {
					return nil, exit.Usagef("--key: %s matches more than one sample (%s and %s); use the full key", o.key, whole, s.Key)
				}
				if n := len(commits); n == 0 || commits[n-1].Seq != log.Commits[i].Seq {
					commits = append(commits, log.Commits[i])
				}
				whole = s.Key
			}
		}
		parts = append(parts, log.With(commits))
	}
	if whole == "" {
		o.searched = true
		return nil, exit.Hint(exit.Usagef("--key: no sample of the run has the key %s", termsafe.Text(o.key, 60)), "the table shortens long keys; use --json to print them in full")
	}
	o.key = whole
	return parts, nil
}

// A rowPlace is the place of a row: its log, its shard and its index in the shard.
type rowPlace struct {
	log   *runs.Log
	shard sink.Shard
	n     int64
}

// A foundRow is a row with its place and its number, as --row counts it.
type foundRow[T any] struct {
	row *T
	rowPlace
	number int
}

// found yields the rows for which keep returns true, shard by shard. It adds the error of a damaged shard to
// o.damage, and continues with the next shard. It stops after any other error.
func found[T any](logs []*runs.Log, kind sink.Kind, o *inspectOptions, read func(*runs.Log, sink.Shard) iter.Seq2[*T, error], keep func(*T) bool) iter.Seq2[foundRow[T], error] {
	return func(yield func(foundRow[T], error) bool) {
		number := 0
		for log, s := range runs.Shards(logs, kind) {
			n := int64(0)
			for row, err := range read(log, s) {
				if err = log.Wrap(err); errors.Is(err, sink.ErrCorrupt) {
					if o.damage = append(o.damage, err); !o.filtered() {
						number += int(s.Rows - n)
					}
					break
				}
				if err != nil || keep(row) {
					if !yield(foundRow[T]{row, rowPlace{log, s, n}, number}, err) || err != nil {
						return
					}
					number++
				}
				n++
			}
		}
	}
}

// place returns a function that finds the requested row. Without filters, the function needs only
// the commit logs and does not read any rows.
func place[T any](logs []*runs.Log, kind sink.Kind, rows iter.Seq2[foundRow[T], error], o *inspectOptions) func() (rowPlace, error) {
	return func() (rowPlace, error) {
		n := 0
		if o.filtered() {
			for f, err := range rows {
				if err != nil || f.number == o.row {
					return f.rowPlace, err
				}
				n++
			}
		} else {
			for log, s := range runs.Shards(logs, kind) {
				if at := o.row - n; at < int(s.Rows) {
					return rowPlace{log, s, int64(at)}, nil
				}
				n += int(s.Rows)
			}
		}
		o.searched = true
		what := map[sink.Kind]string{sink.KindData: "row", sink.KindFailures: "failure row"}[kind]
		return rowPlace{}, exit.Hint(exit.Usagef("--row: %d is out of range (%s)", o.row, format.Plural(int64(n), what)), "rows are numbered from 0")
	}
}

func inspectOne[T any](p *program, run *runs.Run, o *inspectOptions, paint show.Painter, place func() (rowPlace, error),
	read func(*runs.Log, sink.Shard, int64) (*T, error), write func(io.Writer, *T, show.RowView) error,
) error {
	var tokenizer *bpe.Tokenizer
	var err error
	if o.tokenizer != "" { // report a wrong folder before reading rows
		if tokenizer, err = p.tokenizer(run, o.tokenizer); err != nil {
			return err
		}
	}
	at, err := place()
	if err != nil {
		return err
	}
	row, err := read(at.log, at.shard, at.n)
	if err != nil {
		return at.log.Wrap(err)
	}
	if o.asJSON {
		return p.printJSON(show.ColumnsOf(row))
	}
	if o.tokenizer == "" {
		tokenizer = p.runTokenizer(run)
	}
	return write(p.stdout, row, show.RowView{Number: o.row, Paint: paint, Spell: model.SpellerOf(tokenizer), Whole: o.whole, Width: p.width(), Unshown: o.unshown})
}

// noTokenizer is the value of --tokenizer that shows tokens as ids instead of text.
const noTokenizer = "none"

// tokenizer returns the tokenizer in the folder that the user chose, or the run's tokenizer. It is nil if
// tokens are shown as ids.
func (p *program) tokenizer(run *runs.Run, dir string) (*bpe.Tokenizer, error) {
	switch dir {
	case "":
		return p.runTokenizer(run), nil
	case noTokenizer:
		return nil, nil
	}
	return (&model.Place{Key: "--tokenizer", Dir: dir}).LoadTokenizer()
}

// runTokenizer returns the run's own tokenizer. It returns nil if the tokenizer cannot be used, and reports the
// reason.
func (p *program) runTokenizer(run *runs.Run) *bpe.Tokenizer {
	if run.Info.Model.Tokenizer() == "" {
		return nil
	}
	place, err := run.TokenizerPlace()
	var tokenizer *bpe.Tokenizer
	if err == nil && place.Dir != "" {
		tokenizer, err = place.LoadTokenizer()
	}
	switch {
	case err != nil:
		p.say("showing tokens as ids: %v; pass another tokenizer with --tokenizer DIR", err)
	case tokenizer == nil:
		p.say("showing tokens as ids: the run's tokenizer is no longer at its recorded path; use --tokenizer DIR")
	default:
		p.say("showing tokens as text with the run's tokenizer %s; --tokenizer none shows ids", place.Dir)
	}
	return tokenizer
}

func (p *program) inspectRows(rows iter.Seq2[foundRow[sink.StoredRow], error], o *inspectOptions) error {
	w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	if !o.asJSON {
		termsafe.Fprintf(w, "row\tkey\ttask\tindex\tsegment\ttokens\ttrained\treward\tgrade\tstatus\tflags\n")
	}
	n, tokens, trained, forks, leftOut := 0, 0, 0, 0, 0
	grades, sources := map[string]int{}, map[string]int{}
	for at, err := range rows {
		if err != nil {
			return err
		}
		r := at.row
		if o.limit > 0 && n == o.limit {
			break
		}
		total, t := r.TokenCount()
		if o.asJSON {
			line := map[string]any{
				"row": at.number, "sample_key": r.SampleKey, "task_id": r.TaskID, "sample_index": r.SampleIndex,
				"segment_index": r.SegmentIndex, "segment_count": r.SegmentCount, "chain": r.Chain, "chain_kind": r.ChainKind,
				"tokens": total, "trained": t,
				"reward": r.Reward, "verification": r.Verification, "prompt_source": r.PromptSource, "status": r.Status, "flags": r.Flags,
			}
			if r.ParentChain != nil {
				line["parent_chain"], line["parent_step"] = *r.ParentChain, r.ParentStep
			}
			if u, ok := o.unshown[r.SampleKey]; ok {
				line["unshown"] = u
			}
			if r.Keep != nil {
				line["keep"], line["keep_reason"] = *r.Keep, r.KeepReason
			}
			if err := p.printJSON(line); err != nil {
				return err
			}
		} else {
			termsafe.Fprintf(w, "%d\t%s\t%s\t%d\t%d/%d%s\t%d\t%d\t%s\t%s\t%s\t%s\n", at.number, show.ShortKey(r.SampleKey), termsafe.Text(r.TaskID, 32), r.SampleIndex,
				r.SegmentIndex+1, r.SegmentCount, show.ChainText(r, " chain "), total, t, show.Reward(r.Reward), r.Verification, r.Status, show.RowFlags(r))
		}
		n++
		tokens += total
		trained += t
		grades[r.Verification]++
		sources[r.PromptSource]++
		// If the column cannot be read, count the row as a fork. rollout verify reports the damage.
		if d, err := show.ReadDivergence(r.Divergence); err != nil || d.Kind != "" {
			forks++
		}
		if r.Keep != nil && !*r.Keep {
			leftOut++
		}
	}
	if o.asJSON {
		return nil
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if n == 0 && o.key != "" && o.damage == nil {
		p.say("the sample has no rows; --failures shows its failures")
		return nil
	}
	p.say("%s, %s, %s of them trained; %s; prompts from %s; %s",
		format.Plural(int64(n), "row"), format.Plural(int64(tokens), "token"), format.Percent(int64(trained), int64(tokens)),
		show.Counted(grades), show.Counted(sources), format.Plural(int64(forks), "fork"))
	if leftOut > 0 {
		p.say("rows with keep=false: %d; rollout.Dataset skips them", leftOut)
	}
	return nil
}

func (p *program) inspectFailures(failures iter.Seq2[foundRow[sink.StoredFailure], error], done map[string]struct{}, o *inspectOptions) error {
	w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	if !o.asJSON {
		termsafe.Fprintf(w, "row\tkey\ttask\tindex\tattempt\tclass\treason\tstage\tcall\ttokens\terror\n")
	}
	n := 0
	for at, err := range failures {
		if err != nil {
			return err
		}
		f := at.row
		if o.limit > 0 && n == o.limit {
			break
		}
		_, superseded := done[f.SampleKey] // a later success supersedes the failure
		if o.asJSON {
			if err := p.printJSON(map[string]any{
				"row": at.number, "sample_key": f.SampleKey, "task_id": f.TaskID, "sample_index": f.SampleIndex, "attempt": f.Attempt,
				"class": f.Class, "reason": f.Reason, "stage": f.Stage, "error": f.Error, "call": f.Call,
				"tokens": len(f.OutputIDs), "status": f.Status, "stop_reason": f.StopReason, "superseded": f.Call < 0 && superseded,
			}); err != nil {
				return err
			}
		} else {
			termsafe.Fprintf(w, "%d\t%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\t%d\t%s\n", at.number, show.ShortKey(f.SampleKey), termsafe.Text(f.TaskID, 32), f.SampleIndex, f.Attempt,
				f.Class, cmp.Or(f.Reason, "-"), f.Stage, callText(f.Call), len(f.OutputIDs), termsafe.Text(f.Error, show.ErrorWidth(o.whole)))
		}
		n++
	}
	if o.asJSON {
		return nil
	}
	return w.Flush()
}

// callText returns the number of the failed call, or "all" if the whole sample failed.
func callText(call int32) string {
	if call < 0 {
		return "all"
	}
	return strconv.Itoa(int(call))
}

// doneIn returns the keys of the samples that do not have to run again.
func doneIn(logs []*runs.Log) map[string]struct{} {
	done := map[string]struct{}{}
	for _, log := range logs {
		maps.Copy(done, log.Done())
	}
	return done
}

func runTotals(logs []*runs.Log) string {
	var rows, failures int64
	var tokens sink.Tokens
	for _, s := range runs.Shards(logs) {
		if s.Kind == sink.KindFailures {
			failures += s.Rows
			continue
		}
		rows += s.Rows
		tokens.Total += s.Tokens.Total
		tokens.Trainable += s.Tokens.Trainable
	}
	return fmt.Sprintf("the run has %s with data (%s, %s, %s of them trained) and %s",
		format.Plural(int64(len(doneIn(logs))), "sample"), format.Plural(rows, "row"), format.Plural(tokens.Total, "token"),
		format.Percent(tokens.Trainable, tokens.Total), format.Plural(failures, "failure row"))
}

// reportNoRows reports that no row of the task was found. It suggests the task that the user
// probably meant.
func (p *program) reportNoRows(task string, run *runs.Run, logs []*runs.Log) {
	text := "task " + termsafe.Text(task, 60) + " has no rows"
	if near := format.NearestOf(task, taskIDs(run, logs)); near != "" && near != task {
		text += "; did you mean " + termsafe.Text(near, 60) + "?"
	}
	p.say("%s", text)
}

// taskIDs yields the ids of a run's tasks. An imported run has no tasks, so taskIDs reads the ids
// from the run's rows. It stops at the first error, because the ids are only used for a suggestion.
func taskIDs(run *runs.Run, logs []*runs.Log) iter.Seq[string] {
	return func(yield func(string) bool) {
		has := false
		if run.Dir != "" {
			for t, err := range tasks.Read(filepath.Join(run.Dir, runfolder.TasksFile), nil) {
				if has = true; err != nil || !yield(t.ID) {
					return
				}
			}
		}
		if has {
			return
		}
		for log, s := range runs.Shards(logs, sink.KindData) {
			for r, err := range log.Facts(s) {
				if err != nil || !yield(r.TaskID) {
					return
				}
			}
		}
		for log, s := range runs.Shards(logs, sink.KindFailures) {
			for f, err := range log.FailureFacts(s) {
				if err != nil || !yield(f.TaskID) {
					return
				}
			}
		}
	}
}
