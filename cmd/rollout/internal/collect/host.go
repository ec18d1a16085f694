// Package collect implements rollout collect, except for the parsing of its flags. Three values
// represent a collection, and each is built from the previous value:
//
//	Plan     plan.go     settings, tasks and servers: what will be collected
//	Opened   open.go     the run's folder, its dataset and its journal
//	Running  running.go  the collector and its helpers, until the end of the run
//
// Until a Plan is complete, nothing is written except an empty folder, so a refused run leaves no
// files. An Opened run can be resumed, no matter how the process ends. All three values use the
// same Host.
//
//	options.go   the flags that are not settings
//	host.go      streams, messages, and interrupts before the run
//	settings.go  converts settings into the configurations of the libraries
//	tasks.go     the tasks of a plan
//	servers.go   the servers of a plan
//	print.go     prints the plan of a dry run
//	groups.go    runs that commit whole groups
//	stream.go    tasks and server runs that arrive during a run
//	control.go   requests from rollout ctl
//	ends.go      interrupts during a run
//	outcome.go   how a run ended
package collect

import (
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/show"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/signals"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/version"
)

// A Host contains the streams of the process, its messages, and the functions that undo
// preparations if an interrupt arrives before the run begins. It is created before the plan and
// outlives the run.
type Host struct {
	*show.Observer // its spans are added by NewPlan, and its log by Open

	Stdin          io.Reader
	Stdout, Stderr *termsafe.Writer // replaced with writers that discard if Close stops waiting for the reader
	getenv         func(string) string
	exit           func() // ends the process at once

	phase   atomic.Value        // the current step, a string
	run     atomic.Pointer[run] // nil until the run begins
	started func()              // must be called when the run begins; an interrupt then no longer ends the program at once
	unshown func()              // stops printing the status on a signal

	mu      sync.Mutex
	undo    []func() // called if an interrupt arrives before the run begins
	closers []func() // called by Close, in reverse order
	unread  bool     // true after handOver has stopped waiting for a reader
}

// A run contains the functions that a Host calls once the run has begun.
type run struct {
	showStatus func()
	orphaned   func()      // called when the parent process has ended; ends this process
	impatient  func() bool // reports whether to exit even if the output has not been read
}

// NewHost returns the host of a collection. Until the run begins, an interrupt ends the program,
// even if the program is waiting for a server or for standard input. The function exit ends the
// process at once.
func NewHost(stdin io.Reader, stdout, stderr *termsafe.Writer, getenv func(string) string, exit func(), o *Options) *Host {
	h := &Host{
		Observer: &show.Observer{
			Display: show.NewDisplay(stdout, stderr, getenv, o.JSON, o.Quiet), Log: show.DiscardLog(),
			Metrics: show.NewMetrics(version.Read().Version),
		},
		Stdin: stdin, Stdout: stdout, Stderr: stderr, getenv: getenv, exit: exit,
	}
	if !o.DryRun { // a dry run has nothing to save if the reader of its output exits
		signals.OutliveReaders()
	}
	if o.Attached {
		go h.watchParent()
	}
	h.unshown = signals.OnStatus(h.showStatus)
	h.started = signals.First(func() {
		h.undoAll()
		h.abort("interrupted before the run started")
	})
	return h
}

// Close releases the resources of the collection and waits until all output has been read. It
// returns the parameter end, which is the error of the collection.
func (h *Host) Close(end error) error {
	for _, f := range slices.Backward(h.closers) {
		f()
	}
	h.started()
	h.unshown()
	return h.handOver(end)
}

// atClose registers f to be called by Close. Close calls the functions in reverse order of
// registration.
func (h *Host) atClose(f func()) { h.closers = append(h.closers, f) }

// onAbort registers f to be called if the program ends before the run begins, because of an
// interrupt or because its parent process has ended. onAbort is safe for concurrent use.
func (h *Host) onAbort(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.undo = append(h.undo, f)
}

func (h *Host) undoAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.undo {
		f()
	}
}

// Phase returns the current step of the collection.
func (h *Host) Phase() string {
	phase, _ := h.phase.Load().(string)
	return phase
}

func (h *Host) showStatus() {
	switch r := h.run.Load(); {
	case h.Quiet():
	case r == nil:
		h.Say("status: %s", h.Phase())
	default:
		r.showStatus()
	}
}

// watchParent reads standard input until it ends, and then ends this process at once. Standard
// input ends when the parent process ends.
func (h *Host) watchParent() {
	_, _ = io.Copy(io.Discard, h.Stdin) // a read error counts as the end of standard input
	if r := h.run.Load(); r != nil {
		r.orphaned()
		return
	}
	h.undoAll()
	h.abort("interrupted before the run started: standard input has ended (--attached)")
}

func (h *Host) abort(format string, args ...any) {
	h.Say(format, args...)
	h.Flush(lastWords)
	h.exit()
}

const (
	// lastWords is the maximum time that an aborting process waits for its output to be read.
	lastWords = 200 * time.Millisecond
	// unreadAfter is the time after which a message reports that output has not been read.
	unreadAfter = time.Second
)

// handOver waits until all output has been read. It then returns the parameter end, which is the
// error of the collection. If the output is not read, handOver stops waiting at the second
// interrupt or at the end of the grace time. An interrupt that arrives during this wait ends the
// wait even if it is the first interrupt.
func (h *Host) handOver(end error) error {
	const phase = "waiting for the reader of standard output"
	for !h.unread {
		events, messages := h.Flush(unreadAfter)
		if events && messages {
			return end
		}
		r := h.run.Load()
		h.unread = r != nil && r.impatient()
		switch {
		case h.unread:
			h.Log.Warn("output was not read", "events", !events, "messages", !messages)
			nowhere := termsafe.NewWriter(io.Discard)
			h.Stdout = nowhere
			if !messages { // further writes would block
				h.Stderr = nowhere
			}
		case messages && h.phase.Swap(phase) != phase:
			h.Say("the run has ended and is waiting for its standard output to be read; interrupt to exit")
		}
	}
	return end
}
