package collect

import (
	"context"
	"encoding/json"
	"errors"
	"os"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/ctl"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/stream"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/collector/pace"
	"github.com/rollout-rl/rollout/sink"
)

// grouping implements ctl.Handler.

// Status returns the state of the run.
func (g *grouping) Status() ctl.Status {
	s, p := g.collector.Stats(), g.pace.Stats()
	acked, end := g.tracker.Cursors()
	phase, _ := g.phase.Load().(string)
	out := ctl.Status{
		RunID: g.info.ID, PID: os.Getpid(), StartedAt: s.Started, Phase: phase, Paused: p.Paused, EndOfTasks: g.intake.Why() != "",
		Planned: s.Planned, Committed: s.Committed, Filtered: s.Filtered, Failed: s.Failed,
		Skipped: s.Skipped, Remaining: s.Remaining, InFlight: s.InFlight,
		Groups: ctl.Groups{
			Begun: p.Begun, Whole: p.Whole(), Ahead: p.Ahead, Filtered: p.Filtered, Informative: p.Informative,
			MaxAhead: g.config.Run.MaxAhead, Until: g.config.Tasks.UntilGroups,
		},
		Lag: lagOf(&p, g.config.Run.MaxLag),
	}
	if p.Version >= 0 {
		out.Version = &p.Version
	}
	if acked.RunID != "" {
		out.Cursor = &ctl.Cursor{Seq: acked.Seq, Groups: acked.Groups}
	}
	if end.RunID != "" {
		out.End = &ctl.Cursor{Seq: end.Seq, Groups: end.Groups}
	}
	return out
}

// lagOf converts the lag of the groups that have arrived. most is run.max_lag; negative: no limit.
func lagOf(p *pace.Stats, most int) ctl.Lag {
	out := ctl.Lag{Counts: p.LagCounts()}
	if most >= 0 {
		out.Max = &most
		for _, n := range out.Counts[min(most+1, len(out.Counts)):] {
			out.Stale += n
		}
	}
	return out
}

// Pause holds back further samples until Resume.
func (g *grouping) Pause() error {
	g.pace.Pause()
	g.Log.Info("pause")
	g.Event("paused", nil)
	return nil
}

// Resume ends a Pause.
func (g *grouping) Resume() error {
	g.pace.Resume()
	g.Log.Info("resume")
	g.Event("resumed", nil)
	return nil
}

// Drain accepts no further tasks and ends a pause. The run ends when all accepted tasks are
// collected.
func (g *grouping) Drain() error {
	g.Log.Info("drain", "by", "ctl")
	g.intake.End(whyDrain)
	if g.pace.Stats().Paused {
		return g.Resume()
	}
	return nil
}

// SetVersion records the policy version that samples from now on.
func (g *grouping) SetVersion(version int32) error {
	if g.options.FromRuns {
		return exit.Usagef("the run reads server runs (tasks.from_runs); their versions come from traces")
	}
	if err := g.versions.SetVersion(version); err != nil {
		return exit.Usagef("%w", err)
	}
	g.version(version)
	return nil
}

func (g *grouping) version(version int32) {
	g.setting.Lock()
	defer g.setting.Unlock()
	g.setVersion(version)
}

// setVersion sets the version and reports it. The caller holds the mutex setting.
func (g *grouping) setVersion(version int32) {
	g.pace.SetVersion(version)
	g.Log.Info("version", "version", version)
	g.Event("version", map[string]any{"version": version})
}

// seen handles a version that the version page reported. It ignores a version below the known one:
// the trainer has already reported a newer one.
func (g *grouping) seen(version int32) {
	if g == nil {
		return
	}
	g.setting.Lock()
	defer g.setting.Unlock()
	if version > g.pace.Version() {
		g.setVersion(version)
	}
}

// Acknowledge records that the reader has all groups up to c.
func (g *grouping) Acknowledge(_ context.Context, c ctl.Cursor) error {
	if err := g.ours(c); err != nil {
		return err
	}
	return g.cursorError(g.tracker.Acknowledge(c.Seq, c.Groups))
}

// LeaveOut marks one group that the reader does not want.
func (g *grouping) LeaveOut(c ctl.Cursor) error {
	if err := g.ours(c); err != nil {
		return err
	}
	return g.cursorError(g.tracker.LeaveOut(c.Seq, c.Groups))
}

// ours refuses a cursor of another run. A cursor without a run id counts as a cursor of this run.
func (g *grouping) ours(c ctl.Cursor) error {
	if c.RunID == "" || c.RunID == g.info.ID {
		return nil
	}
	return exit.Hint(exit.Usagef("the cursor (seq %d, groups %d) belongs to run %s, but this is run %s", c.Seq, c.Groups, termsafe.Text(c.RunID, 40), g.info.ID),
		"send the cursor to the collector of its own run")
}

// cursorError converts the error of a refused cursor. It returns nil for nil.
func (g *grouping) cursorError(err error) error {
	switch _, storage := errors.AsType[*sink.ShardError](err); {
	case err == nil:
		return nil
	case storage:
		return exit.Hint(exit.With(exit.Storage, err), "make "+g.folder.Dir+" writable or free disk space, then acknowledge again")
	}
	return exit.Hint(exit.With(exit.Usage, err), "use seq and n of a group event; rollout ctl "+format.Shell(g.folder.Dir)+" status shows the last group")
}

// Task accepts one task. The returned function waits for the result.
func (g *grouping) Task(_ context.Context, line json.RawMessage) func() (ctl.Accepted, error) {
	t, err := tasks.ParseTask(line)
	wait := func() []stream.Receipt { return []stream.Receipt{{Err: exit.With(exit.Usage, err)}} }
	if t.Source = "socket"; err == nil {
		wait = g.intake.Add(&t)
	}
	return func() (ctl.Accepted, error) {
		r := wait()[0]
		g.toldOf(&t, r)
		if _, late := errors.AsType[*stream.ClosedError](r.Err); late {
			return ctl.Accepted{}, exit.Refuse(exit.Usage, r.Err, "after this process has ended, "+runfolder.ResumeCommand(g.folder.Dir)+" --stream takes more tasks")
		}
		if r.Err != nil {
			return ctl.Accepted{}, exit.With(exit.Usage, r.Err)
		}
		return ctl.Accepted{Task: t.ID, Group: r.Group, Samples: r.Samples, Again: r.Again}, nil
	}
}
