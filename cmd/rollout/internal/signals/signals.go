// Package signals maps signals to actions: stopping a run in three steps, printing its status, and
// canceling a program before its run starts.
package signals

import (
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// ErrInterrupted is the context's cause if the user stops a run before its samples have finished.
var ErrInterrupted = errors.New("interrupted")

// ErrGrace is the context's cause if the samples in flight do not finish within run.grace.
var ErrGrace = errors.New("the samples in flight did not finish within run.grace")

// Stops contains the three ways to end a run from outside.
type Stops struct {
	Drain func()            // start no new samples
	Stop  func(cause error) // cancel the samples in flight
	Abort func()            // end the process
}

// Watch handles interrupts from its return until end is called. It calls Drain on the first
// interrupt. It calls Stop on the second interrupt or at the end of the grace time, whichever comes
// first. It calls Abort on the next interrupt after the call of Stop. If one of these functions is
// running, end waits until the function has returned.
func Watch(grace time.Duration, s Stops) (end func()) {
	got := make(chan os.Signal, 3) // room for one signal per step
	signal.Notify(got, os.Interrupt, syscall.SIGTERM)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		s.handle(got, done, grace)
	}()
	return func() {
		signal.Stop(got)
		close(done)
		<-ended
	}
}

// handle handles the interrupts of got until done is closed or Abort has been called.
func (s *Stops) handle(got <-chan os.Signal, done <-chan struct{}, grace time.Duration) {
	var late <-chan time.Time
	for drained, stopped := false, false; ; {
		select {
		case <-done:
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

// OnStatus calls show on every SIGUSR1 until the returned function is called. If show is running,
// the returned function waits until show has returned.
func OnStatus(show func()) (end func()) { return on(show, syscall.SIGUSR1) }

// First calls do on the first interrupt, unless the returned function is called first. The returned
// function can be called more than once.
func First(do func()) (end func()) {
	return on(sync.OnceFunc(do), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
}

// This function calls do for each signal until the returned function is called. If do is running,
// the returned function waits until do has returned.
func on(do func(), signals ...os.Signal) (end func()) {
	got := make(chan os.Signal, 1)
	signal.Notify(got, signals...)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-got:
				do()
			case <-done:
				return
			}
		}
	}()
	return sync.OnceFunc(func() {
		signal.Stop(got)
		close(done)
		<-ended
	})
}

// OutliveReaders prevents SIGPIPE from killing the process. A write to a closed standard output or
// standard error then only returns an error. SIGPIPE is caught rather than ignored, because child
// processes would inherit an ignored signal.
func OutliveReaders() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // nothing needs to receive from the channel
}
