package collect

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/ctl"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/serverruns"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/stream"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/collector"
)

// Reasons why a stream no longer accepts tasks. The event "drained" contains the reason.
const (
	whyEnd    = "end of tasks"
	whyDrain  = "drain"
	whyGroups = "until_groups"
	whyStop   = "stop"
)

// arrivals passes the tasks of a stream to the collector. The tasks come from a file, from standard
// input, from the socket or, with tasks.from_runs or tasks.from_sessions, from a server's or tap's
// records.
type arrivals struct {
	plan   *Plan
	log    *runfolder.TaskLog
	intake *stream.Intake

	unmatched atomic.Bool // true if there are no server runs or sessions to read

	receipts sync.Mutex
	ended    bool // true after the event "drained"; no more tasks are reported
}

// openArrivals opens the run's task log for appending, and the control socket. It adds to cfg the
// functions that the collector needs for a stream.
func (r *Running) openArrivals(cfg *collector.Config) error {
	p := r.plan
	log, err := p.folder.OpenTaskLog(p.tasks)
	if err != nil {
		return err
	}
	r.host.atClose(func() { _ = log.Close() }) // an error is harmless, because accepted tasks are already durable
	a := &arrivals{plan: p, log: log}
	planned := p.tasks.Samples
	a.intake = stream.New(stream.Config{Log: log, Samples: p.config.Tasks.Samples, Check: a.checker(), Accepted: func(samples int) {
		planned += samples
		r.collector.Plan(planned)
	}})
	r.arrivals = a
	cfg.More = r.newTasks
	started := cfg.Events.AttemptStarted
	cfg.Events.AttemptStarted = func(at collector.Attempt, endpoint string) {
		started(at, endpoint)
		if group := at.Key[:strings.LastIndexByte(at.Key, '-')]; a.intake.Begun(group) {
			r.host.Event("begun", map[string]any{"group": group})
		}
	}
	r.socket, err = ctl.Listen(p.dir())
	if errors.Is(err, errors.ErrUnsupported) && p.source != "" { // without a source, no tasks could ever arrive
		r.host.Say("%v: %s", err, exit.HintOf(err))
		return nil
	}
	if err == nil {
		r.host.atClose(func() { _ = r.socket.Close() }) // if this fails, the next process replaces the stale socket
	}
	return err
}

// newTasks yields tasks as they arrive. If the run had no tasks at the start, it tests the scorer
// and the servers with the first task.
func (r *Running) newTasks(ctx context.Context) iter.Seq2[*collector.Task, error] {
	return func(yield func(*collector.Task, error) bool) {
		tried := r.plan.tasks.Tasks > 0
		for t, err := range r.arrivals.intake.More(ctx) {
			if err == nil && !tried {
				tried = true
				err = r.try(ctx, t)
			}
			if err == nil {
				r.opened.groups.tracker.Task(t)
			}
			if !yield(t, err) || err != nil {
				return
			}
		}
	}
}

// try tests the scorer and the servers with the first task of a stream.
func (r *Running) try(ctx context.Context, t *collector.Task) error {
	err := r.plan.tryScorer(ctx, t)
	if err == nil {
		var answered []string
		answered, err = r.plan.tryServers(ctx, t)
		for _, name := range answered {
			r.collector.Answered(name)
		}
	}
	r.host.phase.CompareAndSwap(phaseTrial, "collecting")
	r.host.phase.CompareAndSwap(phaseScorer, "collecting")
	return err
}

// checker returns the function that checks each new task. Only one goroutine at a time calls this
// function.
func (a *arrivals) checker() func(t *collector.Task) error {
	p := a.plan
	fit := p.newFit()
	return func(t *collector.Task) error {
		if p.options.Reads {
			if t.Recorded == nil {
				kind := p.config.Kind()
				return fmt.Errorf("this run %s (%s) and accepts no other tasks", kind.Does, kind.Key)
			}
			return nil
		}
		if err := runfolder.CheckSamples(p.config, t); err != nil {
			return err
		}
		before := fit.Unscorable()
		err := fit.Check(t)
		if before == 0 && fit.Unscorable() > 0 {
			p.host.Note("task %s has no answer that reward.kind %s can use: its samples get no reward (only the first such task is reported)", termsafe.Text(t.ID, 40), p.config.Reward.Kind)
		}
		return err
	}
}

// read reads tasks from a file, from standard input or from the server until ctx is done. Without a
// socket, the end of the file ends the stream.
func (a *arrivals) read(ctx context.Context, noSocket bool) {
	var err error
	switch source := a.plan.source; {
	case a.plan.options.Reads:
		err = a.readRuns(ctx)
	case source == "":
		return // tasks arrive over the socket until a drain
	case source == "-":
		if err = a.intake.Read(a.plan.host.Stdin, "stdin", a.report); err == nil {
			a.intake.End(whyEnd)
		}
	default:
		if err = a.intake.Take(tasks.Read(source, nil), nil, a.report); err == nil && noSocket {
			a.intake.End(whyEnd)
		}
	}
	if err != nil {
		a.log.Fail(err)
	}
}

// readRuns reads server runs or sessions until all of them have been accepted. With tasks.follow, it
// continues until ctx is done.
func (a *arrivals) readRuns(ctx context.Context) error {
	feed := a.plan.feed(a.log.Has)
	if err := a.intake.Take(feed.Tasks(ctx), feed.Ready, a.report); err != nil {
		return a.plan.runsError(err)
	}
	if ctx.Err() == nil { // otherwise a stop or a drain has already reported the end
		a.reportRuns(feed.Counts())
		a.intake.End(whyEnd)
	}
	return nil
}

func (a *arrivals) reportRuns(n serverruns.Counts) {
	h := a.plan.host
	h.Log.Info("found", "given", n.Given, "known", n.Known, "running", n.Running)
	if n.Total() == 0 {
		a.unmatched.Store(true)
		return
	}
	h.Note("%s", a.plan.describeFound(n))
	if n.Running > 0 {
		h.Say("skipping %s still in progress; use --follow, or run %s later", format.Plural(int64(n.Running), "server run"), a.plan.resumeCommand())
	}
}

// noteSource prints a note that explains why the run does not end by itself.
func (a *arrivals) noteSource() {
	p, dir := a.plan, format.Shell(a.plan.dir())
	switch {
	case p.options.Reads && p.config.Tasks.Follow:
		what := "server runs as they end"
		if p.config.Kind() == config.KindSessions {
			what = "sessions as they end"
		}
		p.host.Note("reading %s; rollout ctl %s drain or an interrupt ends the run", what, dir)
	case !p.options.Reads && p.source != "-" && !p.options.Attached:
		from := "only "
		if p.source != "" {
			from = "from " + p.source + " and "
		}
		p.host.Note("tasks arrive %sover the run's socket; add tasks with rollout ctl %s add FILE, and end the run with rollout ctl %s drain", from, dir, dir)
	}
}

// report sends an event for a task that was accepted or refused. After the event "drained", it
// sends no events, even if standard input still delivers tasks.
func (a *arrivals) report(t *collector.Task, r stream.Receipt) {
	a.receipts.Lock()
	defer a.receipts.Unlock()
	if a.ended {
		return
	}
	h := a.plan.host
	if r.Err == nil {
		h.Event("accepted", map[string]any{"task": t.ID, "group": r.Group, "samples": r.Samples, "again": r.Again})
		return
	}
	where := "a task from the socket"
	fields := map[string]any{"line": nil, "task": nil, "error": termsafe.Text(r.Err.Error(), termsafe.MaxText)}
	if t.Line > 0 {
		fields["line"], where = t.Line, fmt.Sprintf("%s:%d", t.Source, t.Line)
	}
	if t.ID != "" {
		fields["task"] = t.ID
	}
	h.Event("refused", fields)
	h.Log.Warn("task refused", "line", t.Line)
	if !h.JSON() {
		h.Say("refused: %s: %v", where, r.Err)
	}
}

// end calls the given function, which sends the event "drained". No tasks are reported afterwards.
func (a *arrivals) end(last func()) {
	a.receipts.Lock()
	defer a.receipts.Unlock()
	a.ended = true
	last()
}
