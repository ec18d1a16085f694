package collect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/ctl"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/input"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/stream"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/collector"
)

// This file passes the tasks of a stream to the collector, from a file, from standard input or from
// the socket.

// taskFile decides where a stream gets its tasks besides the socket. It returns an error if that is
// a file that cannot be opened.
func (c *collection) taskFile() error {
	if !c.options.Stream || c.options.FromRuns {
		return nil
	}
	file := c.config.Tasks.File
	if s := c.loader.ByKey["tasks.file"]; file == "" || file == "-" && s.Given() == "" {
		if file = ""; !c.options.Attached && carries(c.program.Stdin) {
			file = "-"
		}
	}
	if c.from = file; file == "" || file == "-" {
		return nil
	}
	in, err := input.Open(file, input.Wait)
	if err != nil {
		return exit.Hint(exit.Usagef("tasks: %w", err), tasks.FileHint)
	}
	return in.Close()
}

// carries reports whether standard input can carry tasks. A terminal and /dev/null cannot.
func carries(stdin io.Reader) bool {
	f, ok := stdin.(*os.File)
	if !ok {
		return true
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice == 0
}

// openIntake opens the task log of the run for appending, and the control socket.
func (g *grouping) openIntake() (err error) {
	if g.log, err = g.folder.OpenTaskLog(g.tasks); err != nil {
		return err
	}
	g.atEnd(func() { _ = g.log.Close() }) // accepted tasks are already durable
	planned := g.tasks.Samples
	fit := tasks.NewFit(g.parts.agent, g.parts.collector.Scorer)
	g.intake = stream.New(stream.Config{Log: g.log, Samples: g.config.Tasks.Samples, Check: func(t *collector.Task) error {
		if g.options.FromRuns {
			return checkRead(t)
		}
		if err := runfolder.CheckSamples(g.config, t); err != nil {
			return err
		}
		before := fit.Unscorable()
		err := fit.Check(t)
		if before == 0 && fit.Unscorable() > 0 {
			g.Note("task %s has no answer that reward.kind %s can use, so its samples get no reward; further such tasks are not reported", termsafe.Text(t.ID, 40), g.config.Reward.Kind)
		}
		return err
	}, Accepted: func(samples int) {
		planned += samples
		g.collector.Plan(planned)
	}})
	g.socket, err = ctl.Listen(g.folder.Dir)
	if errors.Is(err, errors.ErrUnsupported) && g.from != "" { // without a source, no task could ever arrive
		g.Say("%v: %s", err, exit.HintOf(err))
		return nil
	}
	if err == nil {
		g.atEnd(func() { _ = g.socket.Close() }) // the next process replaces a stale socket
	}
	return err
}

// more yields the tasks as they arrive. If the run has no task yet, the first one is used to try
// the scorer and the servers.
func (g *grouping) more(ctx context.Context) iter.Seq2[*collector.Task, error] {
	return func(yield func(*collector.Task, error) bool) {
		tried := g.tasks.Tasks > 0
		for t, err := range g.intake.More(ctx) {
			if err == nil && !tried {
				tried = true
				if err = g.tryScorerWith(ctx, t); err == nil {
					err = g.tryWith(ctx, t)
				}
				g.phase.CompareAndSwap(phaseTrial, "collecting")
				g.phase.CompareAndSwap(phaseScorer, "collecting")
			}
			if err == nil {
				g.tracker.Task(t)
			}
			if !yield(t, err) || err != nil {
				return
			}
		}
	}
}

// take reads the tasks of a file, of standard input or of the server until ctx is done.
func (g *grouping) take(ctx context.Context) {
	var err error
	if g.options.FromRuns {
		if err := g.takeRuns(ctx); err != nil {
			g.log.Fail(err)
		}
		return
	}
	switch told := g.toldOf; g.from {
	case "":
		return // tasks arrive over the socket until a drain
	case "-":
		err = g.intake.Read(g.program.Stdin, "stdin", told)
	default:
		err = g.intake.Take(tasks.Read(g.from, nil), nil, told)
	}
	switch {
	case err != nil:
		g.log.Fail(err)
	case g.from == "-" || g.socket == nil:
		g.intake.End(whyEnd)
	}
}

// toldOf reports whether a task was accepted. It reports nothing after the event drained, because
// standard input can still deliver tasks then.
func (g *grouping) toldOf(t *collector.Task, r stream.Receipt) {
	g.receipts.Lock()
	defer g.receipts.Unlock()
	if g.ended {
		return
	}
	if r.Err == nil {
		g.Event("accepted", map[string]any{"task": t.ID, "group": r.Group, "samples": r.Samples, "again": r.Again})
		return
	}
	place := "a task over the socket"
	fields := map[string]any{"line": nil, "task": nil, "error": termsafe.Text(r.Err.Error(), termsafe.MaxText)}
	if t.Line > 0 {
		fields["line"], place = t.Line, fmt.Sprintf("%s:%d", t.Source, t.Line)
	}
	if t.ID != "" {
		fields["task"] = t.ID
	}
	g.Event("refused", fields)
	g.Log.Warn("task refused", "line", t.Line)
	if !g.JSON() {
		g.Say("refused: %s: %v", place, r.Err)
	}
}

// attached reads standard input until it ends, and then ends this process at once. Standard input
// ends when the parent process ends.
func (c *collection) attached() {
	_, _ = io.Copy(io.Discard, c.program.Stdin) // an error counts as the end
	if c.began.Load() == nil {
		c.giveUp()
		c.abort("interrupted before the run started: standard input has ended (--attached)")
	}
	c.Log.Warn("end", "outcome", "detached", "exit", exit.Interrupted)
	c.parts.kill()
	c.abort("standard input has ended, so the parent process is gone (--attached): exiting now; continue with: %s", runfolder.ResumeCommand(c.dir()))
}
