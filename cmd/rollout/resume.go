package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
)

// An earlierRun is the run that an invocation continues.
type earlierRun struct {
	info   runInfo
	folder *runFolder // nil for a dry run, which locks nothing
}

// findRun opens the run in the configured folder and fills what nothing else gave
// from it. Where there is none it returns nil: --resume begins one then.
func (p *program) findRun(l *config.Loader, o *collectOptions) (*earlierRun, error) {
	dir := l.Config.Output.Dir
	switch {
	case dir == "":
		return nil, exit.Hint(exit.Usagef("output.dir is not set: which run is to be continued?"), "give its folder with --out")
	case !hasRun(dir):
		if o.retryFailed {
			return nil, exit.Hint(exit.With(exit.Folder, fmt.Errorf("%s: holds no run whose failures could be retried", dir)), "give the folder of a run with --out")
		}
		return nil, checkNewRun(dir)
	}
	e := new(earlierRun)
	var err error
	if !o.dryRun {
		if e.folder, err = openRun(dir, l.Config.FileMode()); err != nil {
			return nil, err
		}
		if s := e.folder.lock.stale; s.PID != 0 && !o.quiet {
			p.say("%s: was left by a sudden end (%s)", dir, s)
		}
	} else if h, held := locked(dir); held {
		return nil, lockedError(dir, h, "wait for it")
	}
	if e.info, err = readRun(dir); err != nil {
		return nil, errors.Join(err, e.close())
	}
	l.FromRun(e.info.Config, "")
	if s := l.ByKey["output.share"]; s.Origin == config.OriginDefault {
		if folder, err := os.Stat(dir); err == nil { // of a program that did not know the setting
			l.Put(s, config.OriginRun, config.ShareOf(folder))
		}
	}
	if e.folder != nil {
		e.folder.mode = l.Config.FileMode()
	}
	return e, nil
}

func (e *earlierRun) close() error {
	if e == nil || e.folder == nil {
		return nil
	}
	return e.folder.close()
}

// tasksAgain reads the tasks of a run that is continued: those that were given, or
// the run's own, with more samples where more were asked for. What the run cannot
// take is in the complaints.
func (p *program) tasksAgain(c *collection, l *config.Loader, e *earlierRun) (_ *taskSet, bad exit.Complaints, err error) {
	dir := c.config.Output.Dir
	snapshot := (&runFolder{dir: dir}).tasksPath()
	digest, err := checkSnapshot(dir, &e.info)
	if err != nil {
		return nil, nil, err
	}
	e.info.Tasks.SHA256 = digest
	had, err := e.info.samples()
	if err != nil {
		return nil, nil, err
	}
	set, bad, err := p.tasksNow(c, l, e, snapshot, had)
	if err != nil || bad != nil {
		return nil, bad, err
	}
	planned := plannedOf(c.config, set)
	switch cut := planned < set.samples; {
	case planned < e.info.Tasks.Planned:
		bad = append(bad, fmt.Errorf("tasks.limit: the run has %d samples planned, you gave %d", e.info.Tasks.Planned, planned))
	case cut && c.config.Tasks.Samples > had:
		// The first N samples would be others than before.
		bad = append(bad, fmt.Errorf("tasks.limit: %d samples of a task, where the run has %d, need all of them: lift the limit with --limit 0", c.config.Tasks.Samples, had))
	}
	if bad != nil {
		set.close()
		return nil, bad, nil
	}
	return set, nil, nil
}

// tasksNow is the snapshot of a run with what is given now. Tasks that are those of the
// run cost one reading, and none where nothing was given.
func (p *program) tasksNow(c *collection, l *config.Loader, e *earlierRun, snapshot string, had int) (_ *taskSet, bad exit.Complaints, err error) {
	same := &taskSet{path: snapshot, own: true, digest: e.info.Tasks.SHA256, tasks: e.info.Tasks.Tasks, samples: e.info.Tasks.Samples, bad: e.info.Tasks.Bad}
	check := p.taskCheck(c)
	given := l.ByKey["tasks.file"].Given() != ""
	if !given && check.samples == had && same.samples > 0 {
		return same, nil, nil
	}
	path := snapshot
	if given {
		path = c.config.Tasks.File
		if e.folder != nil {
			check.dir, check.mode = e.folder.dir, e.folder.mode
		}
	}
	fewer := check.samples < had
	if given || fewer {
		check.marks = map[taskHash]taskMark{}
	}
	read := tasks.Read(path, p.stdin)
	if given { // those of the run were looked at when they were
		read = c.fit.Read(read)
	}
	now, err := check.run(read)
	if err != nil {
		return nil, nil, err
	}
	defer now.close()
	unchanged := !given || now.digest == same.digest
	if !unchanged || fewer {
		g := growth{old: snapshot, given: now, marks: check.marks, had: had, now: check.samples}
		if g.spool, err = newSpool(check.dir, check.mode); err != nil {
			return nil, nil, err
		}
		set, bad, err := g.grow()
		if !unchanged || err != nil || bad != nil {
			return set, bad, err
		}
		set.close()
	}
	same.tasks, same.samples = now.tasks, now.samples
	if given {
		same.bad = now.bad
	}
	return same, nil, nil
}

// taskCheck is how the tasks of this invocation are checked, without a folder for them.
func (p *program) taskCheck(c *collection) *taskCheck {
	check := &taskCheck{
		samples: c.config.Tasks.Samples, skipBad: c.config.Tasks.SkipBad,
		skipped: func(bad error) { c.display.say("left out: %v", bad) },
	}
	if c.config.Tasks.File == "-" { // which may have no end
		check.limit = c.config.Tasks.Limit
	}
	return check
}

// samples is how many samples a task of the run has that does not say.
func (i *runInfo) samples() (int, error) {
	l := config.NewLoader(func(string) string { return "" })
	l.FromRun(i.Config, "tasks")
	return l.Config.Tasks.Samples, l.Err()
}

// update writes what an invocation changes in a run: run.json first, which knows
// both digests of the tasks, then the tasks where they have grown.
func (f *runFolder) update(info runInfo, tasks *taskSet, had *runInfo) error {
	err := f.writeRun(info)
	if err == nil && !tasks.own {
		err = f.writeTasks(tasks)
	}
	return exit.With(exit.Storage, err)
}
