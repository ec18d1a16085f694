package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/handover"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runs"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/signals"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/sink"
)

// sayExported reports what an export contains, and what it leaves out.
func (p *program) sayExported(o *exportOptions, left *handover.Left, rewards *runfolder.Rewards, n int64) {
	for _, line := range left.Complaints(handover.Format(o.to)) {
		p.say("%s", line)
	}
	if rewards != nil && o.kind != "failures" {
		recorded := ""
		if o.kind != "all" {
			recorded = "; only --to jsonl --kind all records this"
		}
		p.say("the rewards are from scores set %s (%s)%s", rewards.Set, rewards.Scorer.Kind, recorded)
	}
	if handover.Format(o.to) == handover.Slime {
		p.say("reward is the advantage: slime needs --disable-rewards-normalization")
	}
	if o.out == "-" {
		return
	}
	what := "line"
	switch handover.Format(o.to) {
	case handover.HFTraces:
		what = "session"
	case handover.Slime:
		what = "sample"
	case handover.ATIF, handover.OpenAIMessages, handover.Tinker:
	}
	p.say("wrote %s: %s", o.out, format.Plural(n, what))
}

// writeOut passes the destination of an export to the function write.
func (p *program) writeOut(run *runs.Run, out string, write func(io.Writer) error) error {
	if out == "-" {
		return compressed(termsafe.Raw(p.stdout), "", write)
	}
	return runfolder.WriteNamed(out, run.FileMode(), func(w io.Writer) error { return compressed(w, out, write) })
}

// exportError adds the exit code to an error of an export.
func exportError(ctx context.Context, run *runs.Run, out string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return exit.With(exit.Interrupted, signals.ErrInterrupted)
	case errors.Is(err, sink.ErrCorrupt):
		return run.Error(err)
	case exit.Code(err) == exit.Usage:
		return err
	}
	return exit.With(exit.Storage, fmt.Errorf("%s: %w", out, err))
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
