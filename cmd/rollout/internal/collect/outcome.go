package collect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/preflight"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/report"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/show"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/signals"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/store"
)

// whyStopped returns the error that ended a run early, or nil. It reports a storage failure only
// once, even if the run was interrupted at the same time.
func whyStopped(dir string, runErr, sinkErr error) error {
	if sinkErr == nil {
		return hintStorage(dir, runErr)
	}
	err := hintStorage(dir, exit.With(exit.Storage, fmt.Errorf("storage failed: %w", sinkErr)))
	if runErr == nil || interrupted(runErr) || errors.Is(runErr, collector.ErrStorage) {
		return err
	}
	return errors.Join(runErr, err)
}

// hintStorage adds a hint to an error of the storage whose cause is known.
func hintStorage(dir string, err error) error {
	is := func(causes ...error) bool {
		return slices.ContainsFunc(causes, func(cause error) bool { return errors.Is(err, cause) })
	}
	_, inStore := errors.AsType[*store.Error](err)
	then := ", then continue with: " + runfolder.ResumeCommand(dir) + "; finished samples are kept"
	switch {
	case exit.Code(err) != exit.Storage:
	case inStore: // its text says what to do
		return exit.Hint(err, "fix the cause"+then)
	case is(sink.ErrFull, syscall.ENOSPC, syscall.EDQUOT):
		return exit.Hint(err, "free disk space"+then)
	case is(sink.ErrPermission, fs.ErrPermission, syscall.EROFS):
		return exit.Hint(err, "make "+dir+" writable"+then)
	}
	return err
}

func interrupted(err error) bool {
	return errors.Is(err, signals.ErrInterrupted) || errors.Is(err, signals.ErrGrace) || errors.Is(err, context.Canceled)
}

// outcome classifies how the run ended. It sets the outcome in the summary, and returns the error
// with its exit code.
func (r *Running) outcome(s *show.Summary, err error) error {
	p := r.plan
	switch {
	case err != nil && !interrupted(err):
		s.Outcome, s.Error = "stopped", err.Error()
		if _, ok := errors.AsType[*collector.ScorerError](err); ok {
			err = exit.Hint(err, "fix the scorer ("+string(p.config.Reward.Kind)+"), then continue with: "+p.resumeCommand()+"; unscored samples stay unscored")
		}
		if errors.Is(err, collector.ErrTolerance) {
			err = exit.Hint(err, "rollout failures "+format.Shell(p.rowsAt())+" shows why; to allow more failures, raise --max-failures; continue with: "+p.resumeCommand())
		}
		if barren, ok := errors.AsType[*collector.EarlyFailureError](err); ok {
			dir, remedy := format.Shell(p.rowsAt()), preflight.Remedy(p.config, barren.Reason)
			if remedy == "" {
				remedy = "rollout failures " + dir + " shows why; fix the cause"
			}
			if p.options.Fleet == nil {
				remedy += "; then rollout collect --retry-failed --out " + dir + " collects the failed samples, and " + p.resumeCommand() + " collects the rest"
			} else {
				remedy += "; then " + p.resumeCommand() + " collects the other samples"
			}
			err = exit.Hint(err, remedy)
		}
		if s.Remaining > 0 {
			err = exit.Hint(err, "fix the cause, then continue with: "+p.resumeCommand())
		}
		return err
	case s.Remaining > 0 && p.options.RetryFailed && err == nil && !r.ends.draining():
		s.Outcome = "retried"
		none := ""
		if s.Attempts == 0 {
			none = " (there were none)"
		}
		return exit.Hint(exit.With(exit.Interrupted, fmt.Errorf("%d of %d samples remain: --retry-failed collected only the failed samples%s", s.Remaining, s.Planned, none)),
			"continue with: "+p.resumeCommand())
	case s.Remaining > 0:
		s.Outcome = "interrupted"
		return exit.Hint(exit.With(exit.Interrupted, fmt.Errorf("interrupted: %d of %d samples remain", s.Remaining, s.Planned)),
			"continue with: "+p.resumeCommand())
	}
	if w := r.opened.worker; w != nil && r.ends.draining() {
		if n := w.Unsealed(); n > 0 {
			s.Outcome = "interrupted"
			return exit.Hint(exit.With(exit.Interrupted, fmt.Errorf("interrupted: %d of %d partitions are not complete", n, len(p.options.Fleet.Partitions))), "continue with: "+p.resumeCommand())
		}
	}
	s.Outcome = "finished"
	return r.finished(s)
}

// finished checks a run that has completed all its samples. It returns an error unless the numbers
// of failures, skips and groups are within the run's limits.
func (r *Running) finished(s *show.Summary) error {
	p := r.plan
	dir, allowed := format.Shell(p.rowsAt()), p.config.Run.FailOnError.Allowed(s.Planned)
	lost, said := s.Failed+s.ScorerFailures, fmt.Sprintf("%d of %d samples failed", s.Failed, s.Planned)
	switch {
	case s.ScorerFailures > 0 && s.Failed > 0:
		said += fmt.Sprintf(" and %d could not be scored", s.ScorerFailures)
	case s.ScorerFailures > 0:
		said = fmt.Sprintf("%d of %d samples could not be scored", s.ScorerFailures, s.Planned)
	}
	said += fmt.Sprintf(" (allowed: %d)", allowed)
	again := "; collect --retry-failed collects them again"
	if p.options.Fleet != nil {
		again = "" // the log is sealed
	}
	hint := "rollout failures " + dir + " shows why" + again + "; to allow some failures, set --fail-on-error"
	if s.Failed == 0 {
		hint = "rollout inspect " + dir + " --row N shows the reason, under \"reward\"; to allow some unscored samples, set --fail-on-error"
	}
	told := p.tail().MaxSkipped(s.Planned)
	if r.opened.groups != nil || p.info.Tasks.Stream { // in such a run, samples can also be cut at deadlines or become unnecessary
		told = s.Planned
	}
	switch {
	case r.arrivals != nil && r.arrivals.unmatched.Load():
		return p.unmatchedError()
	case lost > allowed:
		return exit.Hint(exit.With(exit.Tolerance, errors.New(said)), hint)
	case s.Skipped > told:
		return exit.Hint(exit.With(exit.Tolerance, fmt.Errorf("%d of %d samples were cut; --tail %s allows %d", s.Skipped, s.Planned, p.tail(), told)),
			"an earlier process cut the samples beyond this limit; rollout collect --retry-failed --out "+dir+" collects them")
	case p.options.Fleet == nil && !hasRows(p.dir(), s):
		by := "by --tail"
		if p.tail().Kind == collector.TailWait {
			by = "at a deadline or because they were not needed"
		}
		return exit.Hint(exit.With(exit.Tolerance, fmt.Errorf("the run has no rows: of %d planned samples, %d were cut %s, and %d have no trainable token", s.Planned, s.Skipped, by, s.Empty)),
			"rollout report "+dir+" has details; to collect the cut samples: rollout collect --retry-failed --out "+dir)
	case s.Groups.Short() && !r.ends.draining(): // not after a drain, because then an interrupt ended the run
		more := "rollout collect --resume --out " + dir + " --tasks MORE"
		if p.info.Tasks.Stream {
			more = "rollout collect --resume --stream --out " + dir
		}
		return exit.Hint(exit.With(exit.Tolerance, fmt.Errorf("ran out of tasks before reaching --until-groups %d: %s", s.Groups.Until, s.Groups)),
			"add tasks with "+more+", or lower --until-groups; rollout report "+dir+" shows the outcome of the groups")
	case lost > 0 && r.host.Quiet():
		return exit.SilentError(exit.Failures)
	case lost > 0 && s.Failed == 0:
		return exit.With(exit.Failures, errors.New(said))
	case lost > 0:
		return exit.With(exit.Failures, fmt.Errorf("%s; rollout failures %s shows why", said, dir))
	}
	return nil
}

// hasRows reports whether the run has any rows. It also returns true if the files cannot be read,
// because that damage is reported elsewhere.
func hasRows(dir string, s *show.Summary) bool {
	if s.Rows > 0 || s.Planned == s.Failed { // failures are reported separately
		return true
	}
	has, err := runfolder.HasRows(dir)
	return has || err != nil
}

// withDamage returns the error of a run whose files are damaged. The error lists the damage before
// the run's other error.
func withDamage(dir string, s *show.Summary, damage []error, end error) error {
	if len(damage) == 0 {
		return end
	}
	err := runfolder.DamageError(dir, damage)
	s.Error = err.Error()
	if _, silent := errors.AsType[exit.SilentError](end); end == nil || silent {
		return err
	}
	return exit.Complaints{err, end}
}

// tail returns the run's policy for cutting its slowest samples.
func (p *Plan) tail() collector.Tail { return p.settings.collector.Tail }

// writeReport writes the report of the run. It returns the parameter end, which is the error of the
// run. If the report finds the first damage, the returned error lists the damage before the run's
// other error.
func (r *Running) writeReport(s *show.Summary, end error) error {
	damage, err := runfolder.WriteReport(r.plan.folder, func(of *report.Report) (json.RawMessage, error) {
		switch {
		case of.Scores != "": // the rewards in the report are not the rewards of the collection
			s.AddLater(of.Scores, of.Rewards.Later)
		case r.plan.settings.collector.Scorer != nil:
			s.AddUnscored(of.Rewards.Scored, of.Rewards.Unscored)
		}
		return json.Marshal(s)
	})
	if len(r.opened.damage.Found()) == 0 {
		for _, err := range damage {
			r.host.Log.Error("damage", "error", err)
		}
		end = withDamage(r.plan.dir(), s, damage, end)
	}
	if err != nil && end == nil {
		return exit.With(exit.Storage, err)
	}
	return end
}

// reportDrained sends the event "drained", which states why the run has ended. No groups follow
// this event.
func (r *Running) reportDrained(err error) {
	if r.opened.groups == nil {
		return
	}
	why := whyEnd
	switch {
	case err != nil || r.ends.stopping():
		why = whyStop
	case r.ends.draining():
		why = whyDrain
	case r.opened.groups.pace.Stats().Enough:
		why = whyGroups
	case r.arrivals != nil && r.arrivals.intake.Why() == whyDrain:
		why = whyDrain
	}
	drained := func() { r.host.Event("drained", map[string]any{"why": why}) }
	if r.arrivals == nil {
		drained()
		return
	}
	r.arrivals.end(drained)
}
