package collect

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/ctl"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/stream"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/pace"
	"github.com/rollout-rl/rollout/sink"
)

// control answers the requests of rollout ctl. It implements ctl.Handler.
type control struct {
	plan      *Plan
	groups    *groups
	collector *collector.Collector
	arrivals  *arrivals
	began     time.Time
}

// Status returns the state of the run.
func (c *control) Status() ctl.Status {
	s, p := c.collector.Stats(), c.groups.pace.Stats()
	acked, end := c.groups.tracker.Cursors()
	out := ctl.Status{
		RunID: c.plan.info.ID, PID: os.Getpid(), StartedAt: c.began, Phase: c.plan.host.Phase(), Paused: p.Paused, EndOfTasks: c.arrivals.intake.Why() != "",
		Planned: s.Planned, Committed: s.Committed, Filtered: s.Filtered, Failed: s.Failed,
		Skipped: s.Skipped, Remaining: s.Remaining, InFlight: s.InFlight,
		Groups: ctl.Groups{
			Begun: p.Begun, Whole: p.Whole(), Ahead: p.Ahead, Filtered: p.Filtered, Informative: p.Informative,
			MaxAhead: c.plan.config.Run.MaxAhead, Until: c.plan.config.Tasks.UntilGroups,
		},
		Lag: lagOf(&p, c.plan.config.Run.MaxLag),
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

// lagOf converts the pacer's histogram of policy lags to a ctl.Lag. The parameter most is
// run.max_lag. A negative value means no limit.
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

// Pause holds back new samples until Resume is called.
func (c *control) Pause() error {
	c.groups.pace.Pause()
	c.plan.host.Log.Info("pause")
	c.plan.host.Event("paused", nil)
	return nil
}

// Resume ends a pause. It sends the event "resumed" before any waiting sample can start.
func (c *control) Resume() error {
	c.plan.host.Log.Info("resume")
	c.plan.host.Event("resumed", nil)
	c.groups.pace.Resume()
	return nil
}

// Drain stops accepting tasks and ends a pause. The run ends when all accepted tasks have been
// collected.
func (c *control) Drain() error {
	c.plan.host.Log.Info("drain", "by", "ctl")
	c.arrivals.intake.End(whyDrain)
	if c.groups.pace.Stats().Paused {
		return c.Resume()
	}
	return nil
}

// SetVersion records that the engines sample with this policy version from now on.
func (c *control) SetVersion(version int32) error {
	if c.plan.options.Reads {
		kind := c.plan.config.Kind()
		return exit.Usagef("the run %s (%s), which contain their policy versions", kind.Does, kind.Key)
	}
	if err := c.plan.versions.SetVersion(version); err != nil {
		return exit.Usagef("%w", err)
	}
	c.groups.setVersion(version, false)
	return nil
}

// Acknowledge records that the reader has received all groups up to the cursor.
func (c *control) Acknowledge(_ context.Context, at ctl.Cursor) error {
	if err := c.checkRun(at); err != nil {
		return err
	}
	defer c.groups.report()
	return c.cursorError(c.groups.tracker.Acknowledge(at.Seq, at.Groups))
}

// LeaveOut records that the reader drops one group.
func (c *control) LeaveOut(at ctl.Cursor) error {
	if err := c.checkRun(at); err != nil {
		return err
	}
	defer c.groups.report()
	return c.cursorError(c.groups.tracker.LeaveOut(at.Seq, at.Groups))
}

// checkRun refuses a cursor that belongs to another run. A cursor without a run id is accepted.
func (c *control) checkRun(at ctl.Cursor) error {
	if at.RunID == "" || at.RunID == c.plan.info.ID {
		return nil
	}
	return exit.Hint(exit.Usagef("the cursor (seq %d, groups %d) belongs to run %s, but this is run %s", at.Seq, at.Groups, termsafe.Text(at.RunID, 40), c.plan.info.ID),
		"send the cursor to the collector of its own run")
}

// cursorError adds the exit code and a hint to the error of a refused cursor. If err is nil, it
// returns nil.
func (c *control) cursorError(err error) error {
	switch _, storage := errors.AsType[*sink.ShardError](err); {
	case err == nil:
		return nil
	case storage:
		return exit.Hint(exit.With(exit.Storage, err), "make "+c.plan.dir()+" writable or free disk space, then acknowledge again")
	}
	return exit.Hint(exit.With(exit.Usage, err), "use seq and n of a group event; rollout ctl "+format.Shell(c.plan.dir())+" status shows the last group")
}

// Task adds one task. The returned function waits until the task is accepted or refused.
func (c *control) Task(_ context.Context, line json.RawMessage) func() (ctl.Accepted, error) {
	t, err := tasks.ParseTask(line)
	wait := func() []stream.Receipt { return []stream.Receipt{{Err: exit.With(exit.Usage, err)}} }
	if t.Source = "socket"; err == nil {
		wait = c.arrivals.intake.Add(&t)
	}
	return func() (ctl.Accepted, error) {
		r := wait()[0]
		c.arrivals.report(&t, r)
		if _, late := errors.AsType[*stream.ClosedError](r.Err); late {
			return ctl.Accepted{}, exit.Refuse(exit.Usage, r.Err, "to add tasks after this process has ended, use "+c.plan.resumeCommand()+" --stream")
		}
		if r.Err != nil {
			return ctl.Accepted{}, exit.With(exit.Usage, r.Err)
		}
		return ctl.Accepted{Task: t.ID, Group: r.Group, Samples: r.Samples, Again: r.Again}, nil
	}
}
