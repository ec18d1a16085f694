package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// errInterrupted is the cause of a run that the user stopped at once.
var errInterrupted = errors.New("interrupted")

// errGrace is the cause of a run whose samples in flight did not finish in time.
var errGrace = errors.New("the samples in flight did not finish within run.grace")

// stops are the three ways in which a run is ended from outside.
type stops struct {
	drain func()            // take up nothing more
	stop  func(cause error) // end what is in flight
	abort func()            // end the process
}

// watchSignals turns interrupts into stops until ctx is done: the first drains, the
// second, or the end of the grace time, stops, and the next one aborts.
func watchSignals(ctx context.Context, grace time.Duration, s stops) {
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
			s.stop(errGrace)
		case <-got:
			switch {
			case stopped:
				s.abort()
				return
			case drained:
				stopped, late = true, nil
				s.stop(errInterrupted)
			default:
				drained = true
				s.drain()
				if grace > 0 {
					t := time.NewTimer(grace)
					defer t.Stop()
					late = t.C
				}
			}
		}
	}
}

// watchStatus calls show for every SIGUSR1 until the function that it returns is
// called, which waits for the last show.
func watchStatus(show func()) (end func()) {
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

// whileStarting ends the program on an interrupt, whatever it waits for: a server, or a
// standard input without an end. clean runs before. It ends when the function that it
// returns is called, which may be called again.
func (p *program) whileStarting(clean func()) (end func()) {
	got := make(chan os.Signal, 1)
	signal.Notify(got, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-got:
			clean()
			p.say("interrupted before the run began")
			p.abort()
		case <-done:
		}
	}()
	return sync.OnceFunc(func() {
		signal.Stop(got)
		close(done)
		<-ended
	})
}
