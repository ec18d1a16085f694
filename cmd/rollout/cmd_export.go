package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/spf13/cobra"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/rowjson"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/signals"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/sink"
)

type exportOptions struct {
	rowFilter
	scores    string
	out, kind string
}

func (p *program) exportCmd() *cobra.Command {
	o := exportOptions{}
	cmd := &cobra.Command{
		Use:   "export RUN",
		Short: "write the rows of a run as JSON Lines",
		Long: `Write the rows of a run as JSON Lines, one object per row with all of its columns:
token ids, loss mask and log-probabilities as arrays, JSON values as strings, times in
microseconds since 1970. Floats round-trip exactly; "NaN", "Infinity" and "-Infinity"
stand for values that JSON lacks.

--kind failures writes the failures instead. --kind all writes the whole run in commit
order: a header line, rows, failures, and samples with neither. import turns this export
into a run with the same rows.`,
		Annotations: exits("Exit status: 0 written, 2 usage error, 6 RUN cannot be read or FILE cannot be written, 7 RUN is not a run folder, 9 RUN is damaged."),
		Example: `  rollout export run1 | jq -c '[.task_id, .reward]'
  rollout export run1 --kind all -o run1.jsonl.zst`,
		Args: exactArgs("RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			context.AfterFunc(ctx, stop) // a second signal ends the program at once, in case the output is not being read
			return p.export(ctx, args[0], &o)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.out, "output", "o", "-", "write to `FILE` atomically, compressed if it ends in .gz or .zst; - is standard output")
	f.StringVar(&o.kind, "kind", "data", "`KIND` of rows to write: data, failures or all")
	f.StringVar(&o.scores, "scores", "", scoresUsage)
	f.StringVar(&o.task, "task", "", "write only rows of the task with this `ID`")
	values(cmd, "kind", cobra.ShellCompDirectiveNoFileComp, "data", "failures", "all")
	f.StringVar(&o.group, "group", "", "write only rows of the group with this `ID`")
	f.StringVar(&o.key, "key", "", "write only rows of the sample with this full `KEY`")
	return cmd
}

func (p *program) export(ctx context.Context, dir string, o *exportOptions) error {
	switch o.kind {
	case "data", "failures": // the write method filters by these options
	case "all":
		if o.task+o.group+o.key != "" {
			return exit.Hint(exit.Usagef("--kind all cannot be used with --task, --group or --key"), "to export the whole run, omit these flags; to filter, use --kind data or --kind failures")
		}
	default:
		return exit.Usagef("--kind: %q is not one of data, failures, all", o.kind)
	}
	run, err := p.openRun(ctx, dir)
	if err != nil {
		return err
	}
	run.Scores = o.scores
	logs, err := run.Logs(ctx)
	if err != nil {
		return err
	}
	if n := runfolder.Waiting(run.Dir); run.Dir != "" && n > 0 {
		p.say("not exported: %s in the write-ahead log (only committed samples are exported)", format.Plural(int64(n), "sample"))
	}
	n := int64(0)
	write := func(w io.Writer) (err error) {
		n, err = o.write(ctx, w, logs, run.Info.ID)
		return err
	}
	if o.out == "-" {
		err = compressed(termsafe.Raw(p.stdout), "", write)
	} else {
		err = runfolder.WriteNamed(o.out, func(w io.Writer) error { return compressed(w, o.out, write) })
	}
	switch {
	case ctx.Err() != nil:
		return exit.With(exit.Interrupted, signals.ErrInterrupted)
	case errors.Is(err, sink.ErrCorrupt):
		return run.Error(err)
	case err != nil:
		return exit.With(exit.Storage, fmt.Errorf("%s: %w", o.out, err))
	}
	if o.task != "" && !o.met {
		p.reportNoRows(o.task, run, logs)
	}
	if o.out != "-" {
		p.say("wrote %s: %s", o.out, format.Plural(n, "line"))
	}
	return nil
}

// write writes the selected rows. It returns the number of lines written.
func (o *exportOptions) write(ctx context.Context, w io.Writer, logs []*sink.Log, runID string) (n int64, err error) {
	out := rowjson.NewWriter(w)
	if o.kind == "all" {
		h, err := header(logs, runID)
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
	if o.key != "" { // avoid reading the commits of other samples
		for _, log := range logs {
			log.Commits = slices.DeleteFunc(log.Commits, func(c sink.Commit) bool {
				return !slices.ContainsFunc(c.Samples, func(s sink.CommittedSample) bool { return s.Key == o.key })
			})
		}
	}
	for s, err := range storedIn(logs, kinds) {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return n, err
		}
		task := ""
		if len(s.Rows) > 0 {
			task = s.Rows[0].TaskID
		} else if len(s.Failures) > 0 {
			task = s.Failures[0].TaskID
		}
		if !o.wants(task, s.Group.ID, s.Key) {
			continue
		}
		if err := out.Write(s); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

func storedIn(logs []*sink.Log, kinds []sink.Kind) iter.Seq2[*sink.StoredSample, error] {
	return func(yield func(*sink.StoredSample, error) bool) {
		for _, log := range logs {
			for s, err := range log.Stored(kinds...) {
				if !yield(s, err) || err != nil {
					return
				}
			}
		}
	}
}

// header returns the header line for a whole run. It includes a metadata entry only if the entry
// has the same value in all shards. However, it always lists the sources of policy versions from
// all shards, so that a reader can see whether versions were only claimed.
func header(logs []*sink.Log, runID string) (rowjson.Header, error) {
	h := rowjson.Header{RunID: runID}
	var told []string
	for _, log := range logs {
		for i := range log.Commits {
			h.Samples += int64(len(log.Commits[i].Samples))
		}
	}
	for log, s := range shardsIn(logs) {
		if s.Kind == sink.KindData {
			h.Rows += s.Rows
			h.Format = s.Format
		} else {
			h.Failures += s.Rows
		}
		meta, err := log.Meta(s)
		if err != nil {
			return h, err
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

// compressed copies the output of the function write to w. If name ends in .gz or .zst, it
// compresses the output.
func compressed(w io.Writer, name string, write func(io.Writer) error) error {
	buffered := bufio.NewWriterSize(w, 256<<10)
	inner, end := io.Writer(buffered), func() error { return nil }
	switch {
	case strings.HasSuffix(name, ".gz"):
		z := gzip.NewWriter(buffered)
		inner, end = z, z.Close
	case strings.HasSuffix(name, ".zst"):
		z, err := zstd.NewWriter(buffered, zstd.WithEncoderConcurrency(1))
		if err != nil {
			return err
		}
		inner, end = z, z.Close
	}
	if err := write(inner); err != nil {
		_ = end() // releases the compressor; its error does not matter, because the file is discarded
		return err
	}
	return errors.Join(end(), buffered.Flush())
}
