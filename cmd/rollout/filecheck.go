package main

import (
	"context"
	"errors"
	"sync"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/show"
)

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
	if err := runfolder.CheckFiles(ctx, dir, c.damaged.add); err != nil {
		return err
	}
	damage := c.damaged.found()
	if len(damage) == 0 {
		return nil
	}
	return runfolder.DamageError(dir, damage)
}

// checkBeside compares the files with their digests while the run goes on, until ctx is
// done. The report reads every file once more at the end of a run, so what is not reached
// by then is not passed over.
func (c *collection) checkBeside(ctx context.Context) {
	if c.config.Run.Check == config.CheckFull || len(c.info.Invocations) < 2 {
		return
	}
	if read, err := runfolder.CheckSlowly(ctx, c.folder.Dir, c.foundDamage); err == nil {
		c.log.Info("files checked", "bytes", read, "damaged", len(c.damaged.found()))
	}
}

// foundDamage says at once what is wrong. The run goes on: what it collects is right, and
// its end says it again.
func (c *collection) foundDamage(err error) {
	c.log.Error("damage", "error", err)
	if c.damaged.add(err); len(c.damaged.found()) == 1 {
		c.display.Say("damaged: %v; the run continues, and will end with exit status %d; more like this are only logged", err, exit.Verify)
	}
}

// endDamaged is the end of a run of which files are damaged, however else it ended.
func (c *collection) endDamaged(s *show.Summary, reported []error, end error) error {
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
	err := runfolder.DamageError(c.folder.Dir, damage)
	s.Error = err.Error()
	if _, silent := errors.AsType[exit.Silent](end); end == nil || silent {
		return err
	}
	return exit.Complaints{err, end}
}
