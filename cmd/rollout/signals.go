package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// errInterrupted is the cause of a run that the user stopped at once.
var errInterrupted = errors.New("interrupted")

// errGrace is the cause of a run whose samples in flight did not finish in time.
var errGrace = errors.New("the samples in flight did not finish within run.grace")

// watchSignals turns interrupts into the two stops of a run until ctx is done: the
// first calls drain, the second, or the end of the grace time, calls stop. A third
// one finds no one here any more and ends the process.
func watchSignals(ctx context.Context, grace time.Duration, drain func(), stop func(cause error)) {
	got := make(chan os.Signal, 2) // two: so many are told apart
	signal.Notify(got, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(got)
	var late <-chan time.Time
	for drained := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-late:
			stop(errGrace)
			return
		case <-got:
			if drained {
				signal.Stop(got)
				stop(errInterrupted)
				return
			}
			drained = true
			drain()
			if grace > 0 {
				t := time.NewTimer(grace)
				defer t.Stop()
				late = t.C
			}
		}
	}
}
