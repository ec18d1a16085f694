// Package signals turns signals into what they mean to a run: an end in three steps, a
// question how it goes, the end of a program that has not begun.
package signals

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// ErrInterrupted is the cause of a run that the user stopped at once.
var ErrInterrupted = errors.New("interrupted")

// ErrGrace is the cause of a run whose samples in flight did not finish in time.
var ErrGrace = errors.New("the samples in flight did not finish within run.grace")

// Stops are the three ways in which a run is ended from outside.
type Stops struct {
	Drain func()            // take up nothing more
	Stop  func(cause error) // end what is in flight
	Abort func()            // end the process
}

// Watch turns interrupts into stops until ctx is done: the first drains, the
// second, or the end of the grace time, stops, and the next one aborts.
func Watch(ctx context.Context, grace time.Duration, s Stops) {
	got := make(chan os.Signal, 3) // three: so many are told apart
	signal.Notify(got, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(got)
	var late <-chan time.Time
	for drained, stopped := false, false; ; {
		select {
		case <-ctx.Done():
			return
		case <-late:
			stopped, late = true, nil
			s.Stop(ErrGrace)
		case <-got:
			switch {
			case stopped:
				s.Abort()
				return
			case drained:
				stopped, late = true, nil
				s.Stop(ErrInterrupted)
			default:
				drained = true
				s.Drain()
				if grace > 0 {
					t := time.NewTimer(grace)
					defer t.Stop()
					late = t.C
				}
			}
		}
	}
}

// OnStatus calls show for every SIGUSR1 until the function that it returns is
// called, which waits for the last show.
func OnStatus(show func()) (end func()) {
	got := make(chan os.Signal, 1)
	signal.Notify(got, syscall.SIGUSR1)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-got:
				show()
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(got)
		close(done)
		<-ended
	}
}

// OutliveReaders keeps the process alive when the reader of its standard output or error is gone,
// until it ends: a write fails then, and no SIGPIPE ends the process. Programs that it starts get
// SIGPIPE as ever, which they would not if it were ignored.
func OutliveReaders() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // nobody needs to receive
}

// First calls do on the first interrupt, until the function that it returns is called,
// which may be called again.
func First(do func()) (end func()) {
	got := make(chan os.Signal, 1)
	signal.Notify(got, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-got:
			do()
		case <-done:
		}
	}()
	return sync.OnceFunc(func() {
		signal.Stop(got)
		close(done)
		<-ended
	})
}
