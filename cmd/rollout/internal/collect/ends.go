package collect

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/show"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/signals"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/collector"
)

// The type ends handles the interrupts that end a run in three steps: drain, stop and exit.
type ends struct {
	plan      *Plan
	collector *collector.Collector
	stopTasks func(why string)

	step  atomic.Int32
	over  atomic.Bool               // true after the last sample in flight has ended
	late  atomic.Bool               // true if an interrupt arrived after over became true
	until atomic.Pointer[time.Time] // end of the grace time; nil if there is none
}

// Values of ends.step. Zero means that the run continues normally.
const (
	endDrain = 1 + iota
	endStop
)

func (e *ends) draining() bool { return e.step.Load() >= endDrain }
func (e *ends) stopping() bool { return e.step.Load() == endStop }

// watch handles interrupts until the returned function is called. It calls stop to cancel the run.
func (e *ends) watch(stop func(error)) (end func()) {
	return signals.Watch(e.plan.config.Run.Grace, signals.Stops{Drain: e.drain, Stop: func(cause error) { e.stopNow(cause, stop) }, Abort: e.exitNow})
}

// interruptAtEnd handles an interrupt that arrives after the last sample in flight has ended. The
// first such interrupt prints the remaining work, and the second interrupt exits at once.
func (e *ends) interruptAtEnd() {
	if e.late.Swap(true) {
		e.exitNow()
		return
	}
	e.plan.host.Say("ending: writing finished samples and removing leftover agents; interrupt again to exit now")
}

// drain handles the first interrupt. It stops the run from starting new samples.
func (e *ends) drain() {
	if e.over.Load() {
		e.interruptAtEnd()
		return
	}
	if grace := e.plan.config.Run.Grace; grace > 0 {
		until := time.Now().Add(grace) // includes a monotonic clock reading, so changes of the wall clock do not matter
		e.until.Store(&until)
	}
	h := e.plan.host
	e.step.Store(endDrain)
	h.phase.Store("draining")
	h.Log.Info("drain")
	h.Say("draining: %s; interrupt again to stop", e.describeWork())
	e.collector.Drain()
	e.stopTasks(whyDrain)
}

// stopNow handles the second interrupt. It cancels the samples in flight. The next process collects
// these samples again.
func (e *ends) stopNow(cause error, stop func(error)) {
	switch over := e.over.Load(); {
	case over && errors.Is(cause, signals.ErrGrace):
		return
	case over:
		e.interruptAtEnd()
		return
	}
	h := e.plan.host
	e.step.Store(endStop)
	h.phase.Store("stopping")
	h.Log.Info("stop", "cause", cause.Error())
	h.Say("stopping: %v; writing finished samples; interrupt again to exit now", cause)
	stop(cause)
	e.stopTasks(whyStop)
	e.plan.settings.scoring.Kill() // otherwise a program started by the scorer could block the end of the run indefinitely
}

// exitNow handles the third interrupt. Finished samples are already in the folder.
func (e *ends) exitNow() {
	e.abort("aborted", "exiting now; continue with: %s")
}

// orphaned exits at once because the parent process has ended.
func (e *ends) orphaned() {
	e.abort("detached", "exiting now, because standard input has ended (--attached); continue with: %s")
}

// abort ends the process. The parameter format must contain one %s, for the command that resumes
// the run.
func (e *ends) abort(outcome, format string) {
	e.plan.host.Log.Warn("end", "outcome", outcome, "exit", exit.Interrupted)
	e.plan.settings.scoring.Kill()
	e.plan.host.abort(format, e.plan.resumeCommand())
}

// impatient reports whether the run must exit even if its output has not been read.
func (e *ends) impatient() bool {
	until := e.until.Load()
	return e.late.Load() || e.stopping() || until != nil && time.Now().After(*until)
}

func (e *ends) describeWork() string {
	s := e.collector.Stats()
	text := "waiting "
	if grace := e.plan.config.Run.Grace; grace > 0 {
		text += "at most " + format.Duration(grace) + " "
	}
	text += "for " + show.Works(s)
	if s.Oldest != nil {
		text += fmt.Sprintf(" (oldest: %s #%d, for %s)", termsafe.Text(s.Oldest.TaskID, 24), s.Oldest.Index, format.Duration(time.Since(s.Oldest.Started)))
	}
	return text
}
