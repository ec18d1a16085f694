package collect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/preflight"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/show"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/signals"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
)

// stopped returns the error that ended a run early, or nil. It reports a storage failure once, even
// if the run was interrupted at the same time.
func (c *collection) stopped(runErr, sinkErr error) error {
	if sinkErr == nil {
		return runErr
	}
	err := exit.With(exit.Storage, fmt.Errorf("storage failed: %w", sinkErr))
	switch dir := c.folder.Dir; {
	case errors.Is(sinkErr, sink.ErrFull):
		err = exit.Hint(err, "free disk space, then continue with: "+runfolder.ResumeCommand(dir)+"; finished samples are kept")
	case errors.Is(sinkErr, sink.ErrPermission):
		err = exit.Hint(err, "make "+dir+" writable, then continue with: "+runfolder.ResumeCommand(dir)+"; finished samples are kept")
	}
	if runErr == nil || interrupted(runErr) || errors.Is(runErr, collector.ErrStorage) {
		return err
	}
	return errors.Join(runErr, err)
}

func interrupted(err error) bool {
	return errors.Is(err, signals.ErrInterrupted) || errors.Is(err, signals.ErrGrace) || errors.Is(err, context.Canceled)
}

// end classifies how the run ended. It sets the outcome in the summary and returns the error with
// its exit code.
func (c *collection) end(s *show.Summary, err error) error {
	switch {
	case err != nil && !interrupted(err):
		s.Outcome, s.Error = "stopped", err.Error()
		if _, ok := errors.AsType[*collector.ScorerError](err); ok {
			err = exit.Hint(err, "fix the scorer ("+string(c.config.Reward.Kind)+"), then continue with: "+runfolder.ResumeCommand(c.folder.Dir)+"; unscored samples stay unscored")
		}
		if errors.Is(err, collector.ErrTolerance) {
			err = exit.Hint(err, "rollout failures "+format.Shell(c.folder.Dir)+" shows why; --max-failures allows more; continue with: "+runfolder.ResumeCommand(c.folder.Dir))
		}
		if barren, ok := errors.AsType[*collector.BarrenError](err); ok {
			dir, remedy := format.Shell(c.folder.Dir), preflight.Remedy(c.config, barren.Reason)
			if remedy == "" {
				remedy = "rollout failures " + dir + " shows why; fix the cause"
			}
			err = exit.Hint(err, remedy+"; then rollout collect --retry-failed --out "+dir+" collects the failed samples, and "+runfolder.ResumeCommand(c.folder.Dir)+" the rest")
		}
		if s.Remaining > 0 {
			err = exit.Hint(err, "fix that, then continue with: "+runfolder.ResumeCommand(c.folder.Dir))
		}
		return err
	case s.Remaining > 0 && c.options.RetryFailed && err == nil && c.ending.Load() == 0:
		s.Outcome = "retried"
		none := ""
		if s.Attempts == 0 {
			none = " (there were none)"
		}
		return exit.Hint(exit.With(exit.Interrupted, fmt.Errorf("%d of %d samples remain: --retry-failed collected only the failed ones%s", s.Remaining, s.Planned, none)),
			"continue with: "+runfolder.ResumeCommand(c.folder.Dir))
	case s.Remaining > 0:
		s.Outcome = "interrupted"
		return exit.Hint(exit.With(exit.Interrupted, fmt.Errorf("interrupted: %d of %d samples remain", s.Remaining, s.Planned)),
			"continue with: "+runfolder.ResumeCommand(c.folder.Dir))
	}
	s.Outcome = "finished"
	return c.finished(s)
}

// finished returns the error of a run that completed all its samples. It is nil if failures, skips
// and groups are within the limits of the run.
func (c *collection) finished(s *show.Summary) error {
	dir, allowed := format.Shell(c.folder.Dir), c.config.Run.FailOnError.Allowed(s.Planned)
	lost, said := s.Failed+s.ScorerFailures, fmt.Sprintf("%d of %d samples failed", s.Failed, s.Planned)
	switch {
	case s.ScorerFailures > 0 && s.Failed > 0:
		said += fmt.Sprintf(" and %d could not be scored", s.ScorerFailures)
	case s.ScorerFailures > 0:
		said = fmt.Sprintf("%d of %d samples could not be scored", s.ScorerFailures, s.Planned)
	}
	said += fmt.Sprintf(", allowed: %d", allowed)
	hint := "rollout failures " + dir + " shows why; collect --retry-failed collects them again; --fail-on-error allows some"
	if s.Failed == 0 {
		hint = "rollout inspect " + dir + " --row N shows why, under reward; --fail-on-error allows some"
	}
	told := c.tail().MaySkip(s.Planned)
	if c.grouping != nil || c.info.Tasks.Stream { // cut at their deadlines, or not needed
		told = s.Planned
	}
	switch {
	case c.unmatched.Load():
		return c.unmatchedError()
	case lost > allowed:
		return exit.Hint(exit.With(exit.Tolerance, errors.New(said)), hint)
	case s.Skipped > told:
		return exit.Hint(exit.With(exit.Tolerance, fmt.Errorf("%d of %d samples were cut; --tail %s allows %d", s.Skipped, s.Planned, c.tail(), told)),
			"an earlier process cut the others; rollout collect --retry-failed --out "+dir+" collects them")
	case !c.hasRows(s):
		by := "by --tail"
		if c.tail().Kind == collector.TailWait {
			by = "at a deadline or because they were not needed"
		}
		return exit.Hint(exit.With(exit.Tolerance, fmt.Errorf("%d samples gave no row: %d were cut %s, %d have no trainable token", s.Planned, s.Skipped, by, s.Empty)),
			"rollout report "+dir+" has details; to collect the cut samples: rollout collect --retry-failed --out "+dir)
	case s.Groups.Short() && c.ending.Load() == 0: // otherwise an interrupt ended the run
		more := "rollout collect --resume --out " + dir + " --tasks MORE"
		if c.info.Tasks.Stream {
			more = "rollout collect --resume --stream --out " + dir
		}
		return exit.Hint(exit.With(exit.Tolerance, fmt.Errorf("the tasks ended before --until-groups %d: %s", s.Groups.Until, s.Groups)),
			more+" adds tasks, or lower --until-groups; rollout report "+dir+" shows the outcome of the groups")
	case lost > 0 && c.Quiet():
		return exit.SilentError(exit.Failures)
	case lost > 0 && s.Failed == 0:
		return exit.With(exit.Failures, errors.New(said))
	case lost > 0:
		return exit.With(exit.Failures, fmt.Errorf("%s; rollout failures %s shows why", said, dir))
	}
	return nil
}

// hasRows reports whether the run has any row. It reports true if the files cannot be read, because
// that damage is reported elsewhere.
func (c *collection) hasRows(s *show.Summary) bool {
	if s.Rows > 0 || s.Planned == s.Failed { // the failures are already reported
		return true
	}
	has, err := runfolder.HasRows(c.folder.Dir)
	return has || err != nil
}

func (c *collection) endDamaged(s *show.Summary, damage []error, end error) error {
	if len(damage) == 0 {
		return end
	}
	err := runfolder.DamageError(c.folder.Dir, damage)
	s.Error = err.Error()
	if _, silent := errors.AsType[exit.SilentError](end); end == nil || silent {
		return err
	}
	return exit.Complaints{err, end}
}

func (c *collection) tail() collector.Tail { return c.parts.collector.Tail }

// Values of collection.ending. Zero means that the run continues.
const (
	endDrain = 1 + iota
	endStop
)

// watch handles interrupts with drain, halt and leave until the returned function is called.
func (c *collection) watch(ctx context.Context, stop func(error)) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		signals.Watch(ctx, c.config.Run.Grace, signals.Stops{Drain: c.drain, Stop: func(cause error) { c.halt(cause, stop) }, Abort: c.leave})
	}()
	return func() {
		cancel()
		<-ended
	}
}

// tooLate handles an interrupt after the last sample in flight has ended. The first one prints what
// the process still does, and the second one leaves at once.
func (c *collection) tooLate() {
	if c.late.Swap(true) {
		c.leave()
		return
	}
	c.Say("ending: writing finished samples and removing leftover agents; interrupt again to exit now")
}

// drain handles the first interrupt: no further sample starts.
func (c *collection) drain() {
	if c.over.Load() {
		c.tooLate()
		return
	}
	if grace := c.config.Run.Grace; grace > 0 {
		until := time.Now().Add(grace) // keeps the monotonic reading, because the clock can be set
		c.until.Store(&until)
	}
	c.ending.Store(endDrain)
	c.phase.Store("draining")
	c.Log.Info("drain")
	c.Say("draining: %s; interrupt again to stop", c.waiting())
	c.collector.Drain()
	c.grouping.stop(whyDrain)
}

// halt handles the second interrupt: samples in flight are canceled and remain to be collected.
func (c *collection) halt(cause error, stop func(error)) {
	switch over := c.over.Load(); {
	case over && errors.Is(cause, signals.ErrGrace):
		return
	case over:
		c.tooLate()
		return
	}
	c.ending.Store(endStop)
	c.phase.Store("stopping")
	c.Log.Info("stop", "cause", cause.Error())
	c.Say("stopping: %v; writing finished samples; interrupt again to exit now", cause)
	stop(cause)
	c.grouping.stop(whyStop)
	c.parts.kill() // a program that the scorer started can block it for any time
}

// leave handles the third interrupt. Finished samples are already in the folder.
func (c *collection) leave() {
	c.Log.Warn("end", "outcome", "aborted", "exit", exit.Interrupted)
	c.parts.kill()
	c.abort("exiting now; continue with: %s", runfolder.ResumeCommand(c.folder.Dir))
}

func (c *collection) abort(format string, args ...any) {
	c.Say(format, args...)
	c.Flush(lastWords)
	c.program.Abort()
}

const (
	// lastWords is how long an aborting process waits for a reader of its output.
	lastWords = 200 * time.Millisecond
	// unreadAfter is how long output stays unread before a message says so.
	unreadAfter = time.Second
)

// handOver waits until all output has been read, and returns end, the error of the collection. If
// the reader does not read, it waits until an interrupt: the second one, the end of the grace time
// after the first, or one during the wait itself.
func (c *collection) handOver(end error) error {
	const phase = "waiting for the reader of standard output"
	for !c.unread {
		events, messages := c.Flush(unreadAfter)
		if events && messages {
			return end
		}
		until := c.until.Load()
		c.unread = c.late.Load() || c.ending.Load() == endStop || until != nil && time.Now().After(*until)
		switch {
		case c.unread:
			c.Log.Warn("output was not read", "events", !events, "messages", !messages)
			if nowhere := termsafe.NewWriter(io.Discard); !messages { // further writes would block
				c.program.Stdout, c.program.Stderr = nowhere, nowhere
			} else {
				c.program.Stdout = nowhere
			}
		case messages && c.phase.Swap(phase) != phase:
			c.Say("the run is over and waits for its standard output to be read; interrupt to exit")
		}
	}
	return end
}

func (c *collection) waiting() string {
	s := c.collector.Stats()
	text := "waiting for " + show.Works(s)
	if c.config.Run.Grace > 0 {
		text += ", at most " + format.Duration(c.config.Run.Grace)
	}
	if s.Oldest != nil {
		text += fmt.Sprintf(" (oldest: %s #%d, for %s)", termsafe.Text(s.Oldest.TaskID, 24), s.Oldest.Index, format.Duration(time.Since(s.Oldest.Started)))
	}
	return text
}
