package main

import (
	"context"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/handover"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/rowjson"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runs"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/version"
	"github.com/rollout-rl/rollout/sink"
)

type exportOptions struct {
	rowFilter
	scores    string
	out, kind string
	to        string
	tokenizer string
}

func (p *program) exportCmd() *cobra.Command {
	o := exportOptions{}
	cmd := &cobra.Command{
		Use:   "export RUN",
		Short: "write the rows of a run in the format of another program",
		Long: `Write the rows of a run to a file or a folder:

  --to jsonl            JSON Lines with all columns of every row (the default)
  --to atif             Agent Trajectory Interchange Format 1.8, one trajectory per line,
                        with token ids and log-probabilities in every step that was sampled
  --to hf-traces        a folder of sessions for the trace viewer of the Hugging Face Hub
  --to openai-messages  JSON Lines with the list "messages", for OpenAI and TRL
  --to slime            a file for slime's --load-debug-rollout-data
  --to tinker           JSON Lines with a tinker.Datum

The text of atif, hf-traces and openai-messages comes from the tokens of the row, and needs
the run's tokenizer. Without a tokenizer, hf-traces and openai-messages use the messages that
the run stored (output.messages). Tool calls that can be parsed become tool_calls; others stay
text. Text whose role is not known has the role unknown (in atif: user).

slime and tinker contain only rows for training: rows with a reward and without keep=false.
They contain advantages, as rollout.to_slime and rollout.to_tinker do. slime writes one
training step, in which the groups are contiguous, and needs --disable-rewards-normalization.
export reports what a format leaves out.

import converts jsonl and atif to a run with the same rows, bit for bit. In jsonl, token ids,
loss mask and log-probabilities are arrays, JSON values are strings, and times are
microseconds since 1970. Floats round-trip exactly; "NaN", "Infinity" and "-Infinity" stand
for values that JSON lacks. Only jsonl contains failures: --kind failures writes the failures
instead of the rows. --kind all writes the whole run in commit order: a header line, rows,
failures, and samples with neither. If the rewards are from a scores set, the header names the
set and its scorer. A file can be read by the same users as RUN.

RUN is a folder, or the URL of a fleet or of a copied run. If a part of it cannot be read,
export fails, so that no row is missing without an error.`,
		Annotations: exits("Exit status: 0 written, 2 usage error, 6 RUN cannot be read or FILE cannot be written, 7 RUN is not a run, 9 RUN is damaged."),
		Example: `  rollout export run1 | jq -c '[.task_id, .reward]'
  rollout export run1 --kind all -o run1.jsonl.zst
  rollout export run1 --to atif -o run1.atif.jsonl
  rollout export run1 --to openai-messages | jq -c 'select(.reward == 1)'
  rollout export run1 --to slime -o 0.pt
  rollout export s3://bucket/run1 -o run1.jsonl.zst`,
		Args: exactArgs("RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			context.AfterFunc(ctx, stop) // a second signal ends the program at once, in case the output is not being read
			return p.export(ctx, args[0], &o)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.out, "output", "o", "-", "write to `FILE`, or to a new folder with hf-traces, atomically; compressed if it ends in .gz or .zst; - is standard output")
	f.StringVar(&o.to, "to", jsonl, "`FORMAT` to write: "+strings.Join(exportFormats(), ", "))
	values(cmd, "to", cobra.ShellCompDirectiveNoFileComp, exportFormats()...)
	f.StringVar(&o.kind, "kind", "data", "with jsonl, `KIND` of rows to write: data, failures or all")
	f.StringVar(&o.tokenizer, "tokenizer", "", "decode tokens with the tokenizer in `DIR` (default: the run's tokenizer)")
	f.StringVar(&o.scores, "scores", "", scoresUsage)
	f.StringVar(&o.task, "task", "", "write only rows of the task with this `ID`")
	values(cmd, "kind", cobra.ShellCompDirectiveNoFileComp, "data", "failures", "all")
	f.StringVar(&o.group, "group", "", "write only rows of the group with this `ID`")
	f.StringVar(&o.key, "key", "", "write only rows of the sample with this full `KEY`")
	return cmd
}

func (p *program) export(ctx context.Context, dir string, o *exportOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	run, err := p.openRun(ctx, dir)
	if err != nil {
		return err
	}
	run.Scores = o.scores
	logs, damage, err := run.Logs(ctx)
	if err == nil {
		err = run.Damage(damage) // no row can be missing without an error
	}
	if err != nil {
		return err
	}
	if n := runfolder.Waiting(run.Dir); run.Dir != "" && n > 0 {
		p.say("not exported: %s in the write-ahead log (only committed samples are exported)", format.Plural(int64(n), "sample"))
	}
	rewards, err := run.Rewards()
	if err != nil {
		return err
	}
	options := handover.Options{Program: version.Number}
	if f := handover.Format(o.to); f.Text() {
		if options.Decoder, err = p.decoder(run, logs, f, o.tokenizer); err != nil {
			return err
		}
	}
	left, n := &handover.Left{}, int64(0)
	if o.kind == "data" {
		err = o.leftOut(ctx, logs, left)
	}
	switch {
	case err != nil:
	case o.to == jsonl:
		err = p.writeOut(run, o.out, func(w io.Writer) (err error) {
			n, err = o.write(ctx, w, logs, run.Info.ID, rewards)
			return err
		})
	default:
		n, err = p.handOver(ctx, run, logs, o, options, left)
	}
	if err := exportError(ctx, run, o.out, err); err != nil {
		return err
	}
	if o.task != "" && !o.met {
		p.reportNoRows(o.task, run, logs)
	}
	p.sayExported(o, left, rewards, n)
	return nil
}

// write writes the selected rows. It returns the number of lines written.
func (o *exportOptions) write(ctx context.Context, w io.Writer, logs []*runs.Log, runID string, rewards *runfolder.Rewards) (n int64, err error) {
	out := rowjson.NewWriter(w)
	if o.kind == "all" {
		h, err := header(logs, runID)
		if rewards != nil && err == nil {
			h.Meta[runfolder.RewardsKey] = rewards.String()
		}
		if err == nil {
			err = out.Header(h)
		}
		if err != nil {
			return 0, err
		}
		n++
	}
	var kinds []sink.Kind // nil means all kinds
	switch o.kind {
	case "data":
		kinds = []sink.Kind{sink.KindData}
	case "failures":
		kinds = []sink.Kind{sink.KindFailures}
	}
	for s, err := range o.selected(ctx, logs, kinds) {
		if err == nil {
			err = out.Write(s)
		}
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// selected yields the selected samples, until ctx ends.
func (o *exportOptions) selected(ctx context.Context, logs []*runs.Log, kinds []sink.Kind) iter.Seq2[*sink.StoredSample, error] {
	if o.key != "" { // avoid reading the commits of other samples
		for _, log := range logs {
			log.Commits = slices.DeleteFunc(log.Commits, func(c sink.Commit) bool {
				return !slices.ContainsFunc(c.Samples, func(s sink.CommittedSample) bool { return s.Key == o.key })
			})
		}
	}
	return func(yield func(*sink.StoredSample, error) bool) {
		for s, err := range storedIn(logs, kinds) {
			if err == nil {
				err = context.Cause(ctx)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			task := ""
			if len(s.Rows) > 0 {
				task = s.Rows[0].TaskID
			} else if len(s.Failures) > 0 {
				task = s.Failures[0].TaskID
			}
			if o.wants(task, s.Group.ID, s.Key) && !yield(s, nil) {
				return
			}
		}
	}
}

func storedIn(logs []*runs.Log, kinds []sink.Kind) iter.Seq2[*sink.StoredSample, error] {
	return func(yield func(*sink.StoredSample, error) bool) {
		for _, log := range logs {
			for s, err := range log.Stored(kinds...) {
				if !yield(s, log.Wrap(err)) || err != nil {
					return
				}
			}
		}
	}
}

// header returns the header line for a whole run. It includes a metadata entry only if the entry
// has the same value in all shards. However, it always lists the sources of policy versions from
// all shards, so that a reader can see whether versions were only claimed.
func header(logs []*runs.Log, runID string) (rowjson.Header, error) {
	h := rowjson.Header{RunID: runID}
	var told []string
	for _, log := range logs {
		for i := range log.Commits {
			h.Samples += int64(len(log.Commits[i].Samples))
		}
	}
	for log, s := range runs.Shards(logs) {
		if s.Kind == sink.KindData {
			h.Rows += s.Rows
			h.Format = s.Format
		} else {
			h.Failures += s.Rows
		}
		meta, err := log.Meta(s)
		if err != nil {
			return h, log.Wrap(err)
		}
		told = append(told, meta[runfolder.VersionsSourceKey])
		if h.Meta == nil {
			h.Meta = meta
		}
		maps.DeleteFunc(h.Meta, func(key, value string) bool { return meta[key] != value })
	}
	if strings.Join(told, "") != "" { // empty if the run was imported from lines without a header
		h.Meta[runfolder.VersionsSourceKey] = runfolder.VersionsSources(told)
	}
	return h, nil
}
