package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/decode"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/handover"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/model"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runs"
	"github.com/rollout-rl/rollout/sink"
)

// jsonl is the format of package rowjson. The other formats are in package handover.
const jsonl = "jsonl"

func exportFormats() []string {
	all := []string{jsonl}
	for _, f := range handover.Formats() {
		all = append(all, string(f))
	}
	return all
}

// check checks the flags.
func (o *exportOptions) check() error {
	f := handover.Format(o.to)
	switch {
	case !slices.Contains([]string{"data", "failures", "all"}, o.kind):
		return exit.Usagef("--kind: %q is not one of data, failures, all", o.kind)
	case o.kind == "all" && o.task+o.group+o.key != "":
		return exit.Hint(exit.Usagef("--kind all cannot be used with --task, --group or --key"), "to export the whole run, omit these flags; to filter, use --kind data or --kind failures")
	case !slices.Contains(exportFormats(), o.to):
		return exit.Usagef("--to: %q is not one of %s", o.to, strings.Join(exportFormats(), ", "))
	case o.to != jsonl && o.kind != "data":
		return exit.Usagef("--kind %s: only --to jsonl can contain failures, not %s", o.kind, o.to)
	case o.tokenizer != "" && !f.Text():
		return exit.Usagef("--tokenizer: %s contains no text", o.to)
	case f == handover.HFTraces && o.out == "-":
		return exit.Hint(exit.Usagef("--to hf-traces writes one file per conversation, so it needs a folder"), "pass a new folder with -o DIR")
	}
	return nil
}

// handOver exports the rows of a run in a format of package handover. It returns the number of rows written.
func (p *program) handOver(ctx context.Context, run *runs.Run, logs []*runs.Log, o *exportOptions, options handover.Options, left *handover.Left) (n int64, err error) {
	f := handover.Format(o.to)
	if !f.Text() {
		if options.Rewards, err = readRewards(ctx, logs); err != nil {
			return 0, err
		}
	}
	write := func(w handover.Writer) (err error) {
		defer func() { err = errors.Join(err, w.Close()) }()
		for s, err := range o.selected(ctx, logs, []sink.Kind{sink.KindData}) {
			if err != nil {
				return err
			}
			for i := range s.Rows {
				written, err := w.Write(&s.Rows[i])
				if err != nil {
					return err
				}
				if written {
					n++
				}
			}
		}
		return w.End()
	}
	if f == handover.HFTraces {
		mode := run.FileMode()
		err = runfolder.NewFolder(o.out, mode, func(dir string) error { return write(handover.NewTraces(dir, mode, options, left)) })
		return n, err
	}
	err = p.writeOut(run, o.out, func(w io.Writer) error {
		to, err := handover.NewWriter(f, interruptedWriter{ctx, w}, options, left)
		if err != nil {
			return err
		}
		return write(to)
	})
	return n, err
}

// An interruptedWriter fails after ctx has ended. slime writes most of its file after the last row.
type interruptedWriter struct {
	ctx context.Context
	io.Writer
}

func (w interruptedWriter) Write(p []byte) (int, error) {
	if err := context.Cause(w.ctx); err != nil {
		return 0, err
	}
	return w.Writer.Write(p)
}

// leftOut counts the failures, and the samples with neither rows nor failures, that an export of rows leaves out.
func (o *exportOptions) leftOut(ctx context.Context, logs []*runs.Log, left *handover.Left) error {
	for _, log := range logs {
		for i := range log.Commits {
			c := &log.Commits[i]
			for k := range c.Samples {
				s := &c.Samples[k]
				if s.Rows+s.Failures == 0 && o.task == "" && o.wants("", c.Groups[s.Group].ID, s.Key) { // its task is unknown
					left.Empty++
				}
			}
		}
	}
	for log, s := range runs.Shards(logs, sink.KindFailures) {
		for f, err := range log.FailureFacts(s) {
			if err = errors.Join(log.Wrap(err), context.Cause(ctx)); err != nil {
				return err
			}
			if o.wants(f.TaskID, f.GroupID, f.SampleKey) {
				left.Failures++
			}
		}
	}
	return nil
}

// readRewards reads the rewards of all groups, for the advantages of a format for training.
func readRewards(ctx context.Context, logs []*runs.Log) (handover.Rewards, error) {
	all := handover.Rewards{}
	for log, s := range runs.Shards(logs, sink.KindData) {
		for row, err := range log.Facts(s) {
			if err = errors.Join(log.Wrap(err), context.Cause(ctx)); err != nil {
				return nil, err
			}
			all.Add(row)
		}
	}
	return all, nil
}

// decoder returns the decoder of the run's tokens. It returns nil if the format can use the messages that the
// run stored. Nothing has been written before.
func (p *program) decoder(run *runs.Run, logs []*runs.Log, f handover.Format, tokenizer string) (*decode.Decoder, error) {
	place, err := run.TokenizerPlace()
	if err != nil {
		return nil, err
	}
	if tokenizer != "" { // another tokenizer would give another text
		place = model.Place{Key: "--tokenizer", Dir: tokenizer, Tokenizer: place.Tokenizer}
	}
	stored := f != handover.ATIF && storesMessages(logs)
	if place.Dir == "" {
		if stored {
			return nil, nil
		}
		err := exit.Usagef("%s contains text, but %s has no tokenizer to decode its tokens", f, run.Location)
		return nil, exit.Hint(err, "pass the folder of the model's tokenizer with --tokenizer")
	}
	tok, err := place.LoadTokenizer()
	if err != nil {
		return nil, err
	}
	d := decode.New(tok)
	if !d.Known() && stored && tokenizer == "" {
		return nil, nil
	}
	if !d.Known() {
		err := exit.Usagef("%s: rollout cannot split the text of this model into messages, because %w", place.Dir, decode.ErrForm)
		return nil, exit.Hint(err, "--to jsonl exports the tokens; a run that is collected with output.messages: true stores its messages")
	}
	return d, nil
}

// storesMessages reports whether the first row of the run has messages.
func storesMessages(logs []*runs.Log) bool {
	for log, s := range runs.Shards(logs, sink.KindData) {
		r, err := log.Row(s, 0)
		return err == nil && r.Messages != nil
	}
	return false
}
