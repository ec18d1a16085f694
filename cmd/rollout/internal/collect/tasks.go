package collect

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/input"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/taps"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/journal"
)

// readTasks reads and checks the tasks, and locks the folder. It refuses to continue a run if its
// tasks have changed, or if settings that its rows depend on have changed. The error lists every
// difference.
func (p *planning) readTasks(context.Context) (err error) {
	if err := p.options.Fleet.check(p); err != nil {
		return err
	}
	fit := p.newFit()
	skipped := func(bad error) { p.host.Say("skipped: %v", bad) }
	if p.earlier != nil {
		return p.readTasksAgain(fit, skipped)
	}
	check := runfolder.NewTaskCheck(p.config, skipped)
	if err := p.findSource(); err != nil {
		return err
	}
	if p.options.DryRun {
		err = runfolder.CheckNew(p.dir())
	} else if p.folder, err = runfolder.Begin(p.dir(), p.config.Output.Share.FileMode()); err == nil {
		abandon := func() { _ = p.folder.Abandon() } // the lock is released when the process ends
		p.host.atClose(abandon)
		p.host.onAbort(abandon)
		check.Dir, check.Mode = p.folder.Dir, p.folder.Mode
	}
	if err != nil {
		return err
	}
	if p.options.arriving() {
		p.tasks, err = runfolder.NoTasks(check.Dir, check.Mode)
		return err
	}
	if p.tasks, err = check.Run(fit.Read(tasks.Read(p.config.Tasks.File, p.host.Stdin))); err != nil {
		return err
	}
	p.first = fit.First()
	return fit.Scorable(string(p.config.Reward.Kind), p.host.Note)
}

// newFit returns the check of tasks for the settings of the run.
func (p *Plan) newFit() *tasks.Fit {
	doable := tasks.Overrides(p.settings.agent)
	if p.harness != nil {
		doable = func(t *collector.Task) error {
			err := p.harness.CheckTask(t)
			if err != nil {
				err = errors.New(strings.TrimPrefix(err.Error(), collector.ErrRejected.Error()+": ")) // no server rejected it
			}
			return err
		}
	}
	return tasks.NewFit(doable, p.settings.collector.Scorer)
}

// readTasksAgain is readTasks for a resumed run.
func (p *planning) readTasksAgain(fit *tasks.Fit, skipped func(error)) error {
	if p.folder = p.earlier.Folder; p.folder != nil {
		tidy := func() { _ = p.folder.Clear() } // if this fails, the next process clears the folder
		p.host.atClose(tidy)
		p.host.onAbort(tidy)
	}
	if err := p.findSource(); err != nil {
		return err
	}
	rows, err := runfolder.HasRows(p.dir())
	if err != nil {
		return err
	}
	had, now := p.earlier.Info.Model, p.settings.model
	bad := runfolder.Changes(p.loader, &p.earlier.Info, p.identity, now, rows)
	if bad == nil && !had.Same(now) {
		p.host.Note("prompts are now rebuilt with tokenizer %s (before: %s)", cmp.Or(runfolder.ShortDigest(now.Tokenizer()), "none"), cmp.Or(runfolder.ShortDigest(had.Tokenizer()), "none"))
	}
	if changed := p.earlier.Info.Identity.ScorerChanges(p.identity); bad == nil && changed != nil && rows {
		p.host.Note("the scorer changed: %s. Earlier samples keep their rewards; rollout rescore %s scores all samples with the new one", strings.Join(changed, "; "), format.Shell(p.dir()))
	}
	set, more, err := p.earlier.ReadTasks(p.loader, fit, p.host.Stdin, skipped, p.options.arriving())
	if err == nil {
		err = runfolder.Refuse(p.dir(), append(bad, more...))
	}
	if err != nil {
		set.Close()
		return err
	}
	p.tasks, p.first = set, fit.First()
	return nil
}

// findSource determines the source of a stream's tasks, other than the socket. It returns an error
// if the source is a file that cannot be opened.
func (p *planning) findSource() error {
	if !p.options.Stream || p.options.Reads {
		return nil
	}
	file := p.config.Tasks.File
	if s := p.loader.ByKey["tasks.file"]; file == "" || file == "-" && s.Given() == "" {
		if file = ""; !p.options.Attached && carriesTasks(p.host.Stdin) {
			file = "-"
		}
	}
	if p.source = file; file == "" || file == "-" {
		return nil
	}
	in, err := input.Open(file, input.Wait)
	if err != nil {
		return exit.Hint(exit.Usagef("tasks: %w", err), tasks.FileHint)
	}
	return in.Close()
}

// carriesTasks reports whether standard input can contain tasks. A terminal and /dev/null cannot
// contain tasks.
func carriesTasks(stdin io.Reader) bool {
	f, ok := stdin.(*os.File)
	if !ok {
		return true
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice == 0
}

// checkLimit refuses a tasks.limit that would split a group.
func (p *planning) checkLimit(context.Context) error {
	if !p.byGroups() || p.options.RetryFailed { // --retry-failed collects failed samples from any group
		return nil
	}
	return runfolder.CheckLimit(p.config, p.tasks)
}

// tappedSince returns the earliest time at which a call of the run can have started. The time is
// the start of this process, or the start of the oldest attempt that an earlier process left open.
// For server runs, the time is the value of since= in tasks.from_runs.
func (p *planning) tappedSince() time.Time {
	if runs := p.config.Tasks.FromRuns; runs != nil {
		return runs.Since
	}
	since := time.Now()
	if p.earlier != nil {
		since = openSince(filepath.Join(p.dir(), runfolder.JournalDir), since)
	}
	return since.Add(-taps.Before)
}

// openSince returns the start time of the oldest attempt in the journal that has not ended. If
// every attempt has ended, it returns the parameter now, which is the current time. It ignores
// damage, which is reported when the journal is opened.
func openSince(dir string, now time.Time) time.Time {
	type attempt struct {
		key string
		n   int
	}
	open := map[attempt]time.Time{}
	for e, err := range journal.Read(dir) {
		if err != nil {
			continue
		}
		switch a := (attempt{e.Key, e.Attempt}); e.Op {
		case journal.OpBegin:
			open[a] = e.Time
		case journal.OpEnd:
			delete(open, a)
		default:
		}
	}
	for _, t := range open {
		if t.Before(now) {
			now = t
		}
	}
	return now
}
