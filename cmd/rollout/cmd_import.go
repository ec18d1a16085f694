package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/spf13/cobra"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/handover"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/input"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/rowjson"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/signals"
	"github.com/rollout-rl/rollout/sink"
)

type importOptions struct {
	out, format string
}

func (p *program) importCmd() *cobra.Command {
	o := importOptions{}
	cmd := &cobra.Command{
		Use:   "import FILE... --out RUN",
		Short: "create a run from an export",
		Long: `Create a run from files that export wrote with --to jsonl or --to atif. The rows are
bit-identical to the exported rows, and import checks them against every invariant. If a line
is invalid, import reports it and creates nothing.

A file from export --kind all restores the whole run, with its id, failures and shard
metadata. import refuses a truncated file. A file that contains only rows or only failures
restores only those. All lines of a sample must be adjacent. An export does not contain
the run's tasks, so an imported run cannot be resumed.`,
		Annotations: exits("Exit status: 0 created, 2 a FILE cannot be imported, 6 a FILE cannot be read or RUN cannot be written, 7 RUN already exists."),
		Example: `  rollout export run1 --kind all -o all.jsonl.zst && rollout import all.jsonl.zst --out run2
  rollout export run1 --kind all | rollout import - --out run2 --format arrow`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exit.Hint(exit.Usagef("%sneeds at least one FILE", verb(cmd)), "see "+cmd.CommandPath()+" --help")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			return p.importRun(ctx, args, &o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.out, "out", "", "create the run in the new or empty folder `RUN`")
	f.StringVar(&o.format, "format", "", "`FORMAT` of the shards: parquet or arrow (default: the format in the header of the export, or parquet if there is no header)")
	values(cmd, "format", cobra.ShellCompDirectiveNoFileComp, sink.Parquet.String(), sink.Arrow.String())
	return cmd
}

func (p *program) importRun(ctx context.Context, files []string, o *importOptions) error {
	if o.out == "" {
		return exit.Usagef("import: --out is required")
	}
	if err := needFolder("--out", o.out, "import to a folder, and copy it"); err != nil {
		return err
	}
	in := &importer{p: p, ctx: ctx, files: files, closed: func() {}}
	defer func() { in.closed() }()
	header, err := in.begin()
	if err != nil {
		return in.failed(err)
	}
	cfg := sink.Config{FS: sink.OSMode(config.ShareNone.FileMode()), RunID: runfolder.NewID(time.Now())}
	if header != nil {
		cfg.RunID, cfg.Meta, cfg.Format = header.RunID, header.Meta, header.Format
		if cfg.Experts, err = sink.ExpertsOf(cfg.Meta); err != nil {
			return exit.Usagef("%s: line 1: %w", files[0], err)
		}
		delete(cfg.Meta, sink.ExpertsKey)
	}
	if o.format != "" {
		if err := cfg.Format.UnmarshalText([]byte(o.format)); err != nil {
			return exit.Usagef("--format: %w", err)
		}
	}
	if err := cfg.Validate(); err != nil {
		return exit.Usagef("%s: line 1: %w", files[0], err)
	}
	var stats sink.Stats
	err = runfolder.Import(o.out, cfg.RunID, config.ShareNone.FileMode(), files, func(dir string) (err error) {
		stats, err = sink.Store(dir, cfg, in.parts())
		if err == nil && header != nil {
			err = importedAll(header, &stats, files[0])
		}
		return err
	})
	if err != nil {
		return in.failed(err)
	}
	p.say("created %s: %s, %s, %s; %s tokens", o.out, format.Plural(stats.Samples, "sample"), format.Plural(stats.Rows, "row"),
		format.Plural(stats.Failures, "failure row"), format.Count(stats.Tokens.Total))
	if in.atif {
		p.say("%s: atif cannot carry the run's id, its failures, its samples without rows, and the metadata of its shards; only jsonl with --kind all does", o.out)
	} else if header == nil && in.versions {
		p.say("%s: the source of the policy versions (%s) is unknown; only an export with --kind all contains it", o.out, runfolder.VersionsSourceKey)
	}
	return nil
}

// importedAll returns an error if the numbers of imported rows, failures and samples differ from
// the numbers in the first line.
func importedAll(h *rowjson.Header, s *sink.Stats, file string) error {
	if s.Rows == h.Rows && s.Failures == h.Failures && s.Samples == h.Samples {
		return nil
	}
	hint := "to import the lines that are present, pass a copy without the first line"
	if s.Rows == h.Rows && s.Failures == h.Failures && s.Samples > h.Samples {
		hint = together // the lines of a sample were not adjacent, so the sample was counted twice
	}
	return exit.Hint(exit.Usagef("%s contains %s, %s and %s, but its first line declares %d, %d and %d",
		file, format.Plural(s.Rows, "row"), format.Plural(s.Failures, "failure row"), format.Plural(s.Samples, "sample"), h.Rows, h.Failures, h.Samples), hint)
}

// together is the hint for a file in which the lines of a sample are not adjacent, or in which a
// sample occurs twice.
const together = "all lines of a sample must be adjacent, as in the output of export"

// An importer reads the files in order. It remembers the line numbers of the last two samples, for
// error messages.
type importer struct {
	p      *program
	ctx    context.Context
	files  []string // files that have not been opened
	lines  *rowjson.Reader
	closed func()             // stops reading the current file
	first  *sink.StoredSample // set if the first line is a sample and not a header

	at        string
	last, now sampleLines
	versions  bool // true if at least one row has a policy version
	atif      bool // true if at least one line is a trajectory of ATIF
	ended     bool
}

type sampleLines struct {
	key     string
	attempt int32
	lines   []string
}

// begin opens the first file. If the file has a header, begin reads and returns the header.
func (in *importer) begin() (*rowjson.Header, error) {
	err := in.open(in.files[0])
	if err != nil {
		return nil, err
	}
	part, header, err := in.lines.Read()
	switch {
	case in.ctx.Err() != nil:
		return nil, exit.With(exit.Interrupted, signals.ErrInterrupted)
	case err == io.EOF:
		return nil, exit.Usagef("%s is empty", in.at)
	case err != nil:
		return nil, exit.Hint(in.wrong(err), "use a file that rollout export wrote with --to jsonl or --to atif")
	case header != nil && len(in.files) > 1:
		return nil, exit.Hint(in.wrong(errors.New("the export of a whole run cannot be combined with other files")), "import it alone")
	}
	in.first, in.files = part, in.files[1:]
	return header, nil
}

func (in *importer) parts() iter.Seq2[*sink.StoredSample, error] {
	return func(yield func(*sink.StoredSample, error) bool) {
		part, err := in.first, error(nil) // nil if the first line is a header
		for ; err == nil; part, err = in.next() {
			if part != nil && !yield(in.note(part), nil) {
				return
			}
		}
		if in.ended = err == io.EOF; !in.ended {
			yield(nil, err)
		}
	}
}

// next reads the next part of a sample. At the end of a file, it opens the next file and returns a
// nil part. At the end of the last file, it returns io.EOF.
func (in *importer) next() (*sink.StoredSample, error) {
	part, header, err := in.lines.Read()
	switch {
	case in.ctx.Err() != nil:
		return nil, exit.With(exit.Interrupted, signals.ErrInterrupted)
	case err == io.EOF && len(in.files) > 0:
		name := in.files[0]
		in.files = in.files[1:]
		return nil, in.open(name)
	case err == io.EOF:
		return nil, err
	case err != nil:
		return nil, in.wrong(err)
	case header != nil:
		return nil, exit.Hint(in.wrong(errors.New("the header line of an export must be the first line")), "import whole runs one at a time")
	}
	return part, nil
}

// note records the line number of the part and returns the part.
func (in *importer) note(s *sink.StoredSample) *sink.StoredSample {
	if s.Key != in.now.key || s.Attempt != in.now.attempt {
		in.last, in.now = in.now, sampleLines{key: strings.Clone(s.Key), attempt: s.Attempt}
	}
	for i := range s.Rows {
		in.versions = in.versions || len(s.Rows[i].Versions) > 0 && slices.Max(s.Rows[i].Versions) >= 0
	}
	in.now.lines = append(in.now.lines, fmt.Sprintf("%s: line %d", in.at, in.lines.Line))
	return s
}

// failed adds the file, the line and the exit code to an error about a sample.
func (in *importer) failed(err error) error {
	refused, ok := errors.AsType[*sink.SampleError](err)
	if !ok {
		return err
	}
	of := in.now
	if !in.ended && in.last.key == refused.Key && in.last.lines != nil { // the sink checks a sample when the next sample begins
		of = in.last
	}
	at := of.lines[0]
	if refused.Row >= 0 && refused.Row < len(of.lines) {
		at = of.lines[refused.Row]
	}
	err = exit.Usagef("%s: sample %s: %w", at, refused.Key, refused.Err)
	if errors.Is(err, sink.ErrCommitted) {
		return exit.Hint(err, together+"; to import a run's rows and failures, use one file from export --kind all")
	}
	if _, ok := errors.AsType[*sink.SegmentError](err); ok {
		return exit.Hint(err, together)
	}
	return err
}

// wrong adds to err the location of the last line that was read.
func (in *importer) wrong(err error) error {
	if in.lines.Line == 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		return exit.With(exit.Storage, fmt.Errorf("%s: %w", in.at, err))
	}
	return exit.Usagef("%s: line %d: %w", in.at, in.lines.Line, err)
}

func (in *importer) open(name string) error {
	in.closed()
	in.at, in.closed = name, func() {}
	if name == "-" {
		in.at = "stdin"
		in.read(in.p.stdin, func() {})
		return nil
	}
	f, err := input.Open(name, input.Wait)
	if err != nil {
		return exit.Hint(exit.With(exit.Usage, err), "use a file that rollout export wrote with --to jsonl or --to atif, or - for standard input")
	}
	closed := func() { _ = f.Close() } // read only
	var r io.Reader = f
	switch filepath.Ext(name) {
	case ".gz":
		z, err := gzip.NewReader(f)
		if err != nil {
			closed()
			return exit.Usagef("%s: not a gzip file: %w", name, err)
		}
		r = z
	case ".zst":
		z, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(64<<20))
		if err != nil {
			closed()
			return exit.Usagef("%s: not a zstd file: %w", name, err)
		}
		closed = func() { z.Close(); _ = f.Close() }
		r = z
	}
	in.read(r, closed)
	return nil
}

// read sets in.lines to a Reader that reads r. After an interrupt, reading fails even if r is a
// pipe that does not deliver data.
func (in *importer) read(r io.Reader, closed func()) {
	from, to := io.Pipe()
	go func() { // can block in r.Read until the program exits
		_, err := io.CopyBuffer(to, struct{ io.Reader }{r}, make([]byte, 256<<10))
		_ = to.CloseWithError(err)
		closed()
	}()
	stop := context.AfterFunc(in.ctx, func() { _ = to.CloseWithError(context.Canceled) })
	in.closed = func() {
		stop()
		_ = from.Close() // ends CopyBuffer
	}
	in.lines = rowjson.NewReader(from)
	in.lines.Trajectory = func(line string) (*sink.StoredSample, error) {
		in.atif = true
		return handover.ReadATIF(line)
	}
}
