package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/sink"
)

// checkRate is how many bytes per second are read for digests beside a run at work: some
// 5 to 10 % of one core, and little of a disk.
const checkRate = 64 << 20

// A fileCheck is what was found wrong with the files that earlier processes committed.
// What this process commits was read back already.
type fileCheck struct {
	mu     sync.Mutex
	damage []error
}

func (f *fileCheck) add(err error) {
	f.mu.Lock()
	f.damage = append(f.damage, err)
	f.mu.Unlock()
}

// found returns what was found so far.
func (f *fileCheck) found() []error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.damage
}

// checkFirst compares every file of the run with its digest where that is asked for,
// before anything is changed.
func (c *collection) checkFirst(ctx context.Context) error {
	if c.config.Run.Check != config.CheckFull || len(c.info.Invocations) < 2 {
		return nil
	}
	dir := c.config.Output.Dir
	c.phase.Store("reading the files of the run")
	log, err := sink.ReadLogEach(dir, func(*sink.Commit) {}) // of its samples nothing is asked
	if err != nil {
		return openError(dir, err)
	}
	if err := log.CheckDigests(ctx, nil, c.damaged.add); err != nil {
		return err
	}
	damage := c.damaged.found()
	if len(damage) == 0 {
		return nil
	}
	return damageError(dir, damage)
}

// checkBeside compares the files with their digests while the run goes on, until ctx is
// done. The report reads every file once more at the end of a run, so what is not reached
// by then is not passed over.
func (c *collection) checkBeside(ctx context.Context) {
	if c.config.Run.Check == config.CheckFull || len(c.info.Invocations) < 2 {
		return
	}
	log, err := sink.ReadLogEach(c.folder.dir, func(*sink.Commit) {}) // of its samples nothing is asked
	if err != nil {
		c.foundDamage(err)
		return
	}
	began, read := time.Now(), 0
	pace := func(n int) {
		read += n
		ahead := time.Duration(float64(read)/checkRate*float64(time.Second)) - time.Since(began)
		if ahead < 10*time.Millisecond {
			return
		}
		select {
		case <-time.After(ahead):
		case <-ctx.Done():
		}
	}
	if err := log.CheckDigests(ctx, pace, c.foundDamage); err == nil {
		c.log.Info("files checked", "bytes", read, "damaged", len(c.damaged.found()))
	}
}

// foundDamage says at once what is wrong. The run goes on: what it collects is right, and
// its end says it again.
func (c *collection) foundDamage(err error) {
	c.log.Error("damage", "error", err)
	if c.damaged.add(err); len(c.damaged.found()) == 1 {
		c.display.say("damaged: %v; the run goes on, and will end with exit status %d; more like this go to the log", err, exit.Verify)
	}
}

// endDamaged is the end of a run of which files are damaged, however else it ended.
func (c *collection) endDamaged(s *summary, reported []error, end error) error {
	damage := c.damaged.found()
	if len(damage) == 0 {
		for _, err := range reported { // the report found it first
			c.log.Error("damage", "error", err)
		}
		damage = reported
	}
	if len(damage) == 0 {
		return end
	}
	err := damageError(c.folder.dir, damage)
	s.Error = err.Error()
	if _, silent := errors.AsType[exit.Silent](end); end == nil || silent {
		return err
	}
	return exit.Complaints{err, end}
}

// damageError is the error of a run's files that are not what was written.
func damageError(dir string, damage []error) error {
	err := fmt.Errorf("%s: %w", dir, damage[0])
	if n := len(damage); n > 1 {
		err = fmt.Errorf("%w; %d places are damaged", err, n)
	}
	return exit.Hint(exit.With(exit.Verify, err), damageHint(dir, damage[0]))
}
