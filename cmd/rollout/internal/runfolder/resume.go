package runfolder

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

// An Earlier is the run that an invocation resumes.
type Earlier struct {
	Info   Info
	Folder *Folder // nil for a dry run, which does not lock the folder
}

// Find opens the run in the configured folder. It loads the run's settings that no flag,
// environment variable or file overrides. If there is no run, Find returns nil, because --resume
// then starts a new run. If needed is set, Find returns an error instead. A dry run does not lock
// the folder.
func Find(l *config.Loader, dryRun, needed bool) (*Earlier, error) {
	dir := l.Config.Output.Dir
	switch {
	case dir == "":
		return nil, exit.Hint(exit.Usagef("output.dir is not set, so rollout does not know which run to resume"), "pass the run's folder with --out")
	case !Exists(dir):
		if needed {
			return nil, exit.Hint(exit.With(exit.Folder, fmt.Errorf("%s contains no run, so there are no failures to retry", dir)), "pass the folder of a run with --out")
		}
		return nil, CheckNew(dir)
	}
	e := new(Earlier)
	var err error
	if !dryRun {
		if e.Folder, err = OpenRun(dir, l.Config.Output.Share.FileMode()); err != nil {
			return nil, err
		}
	} else if h, held := Locked(dir); held {
		return nil, LockedError(dir, h, "wait until that process ends")
	}
	if e.Info, err = Read(dir); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	if e.Info.Parent != nil {
		err := fmt.Errorf("%s is a copy of %s with other rewards, so it has no servers to continue with", dir, e.Info.Parent.Location)
		return nil, errors.Join(exit.Hint(exit.With(exit.Folder, err), "collect into a new folder with --out; rollout.Dataset reads several runs together"), e.Close())
	}
	if e.Info.Imported != nil {
		err := fmt.Errorf("%s was imported from %s, so it has no tasks to continue with", dir, strings.Join(e.Info.Imported, ", "))
		return nil, errors.Join(exit.Hint(exit.With(exit.Folder, err), "collect into a new folder with --out; rollout.Dataset reads several runs together"), e.Close())
	}
	l.FromRun(e.Info.Config)
	if e.Folder != nil {
		e.Folder.Mode = l.Config.Output.Share.FileMode()
	}
	return e, nil
}

// Stale describes the process that ended without releasing the folder. It returns "" if there was
// none.
func (e *Earlier) Stale() string {
	if e == nil || e.Folder == nil {
		return ""
	}
	return e.Folder.lock.Stale.String()
}

// Close releases the folder.
func (e *Earlier) Close() error {
	if e == nil || e.Folder == nil {
		return nil
	}
	return e.Folder.close()
}

// ReadTasks returns the tasks of a resumed run. It merges the run's own tasks with the given tasks,
// if any, and raises the numbers of samples if requested. The parameter stream is true if more
// tasks will arrive. The result bad lists the conflicts with the run.
func (e *Earlier) ReadTasks(l *config.Loader, fit *tasks.Fit, stdin io.Reader, skipped func(error), stream bool) (_ *TaskSet, bad exit.Complaints, err error) {
	dir := l.Config.Output.Dir
	snapshot := (&Folder{Dir: dir}).TasksPath()
	digest, err := CheckSnapshot(dir, &e.Info)
	if err != nil {
		return nil, nil, err
	}
	e.Info.Tasks.SHA256 = digest
	before, err := e.Info.taskSettings()
	if err != nil {
		return nil, nil, err
	}
	had := before.Tasks.Samples
	streams := stream || e.Info.Tasks.Stream
	groups := streams || l.Config.Groups() || before.Groups() || e.Info.Tasks.Groups
	if now := l.ByKey["tasks.samples"]; groups && l.Config.Tasks.Samples != had {
		return nil, exit.Complaints{fmt.Errorf("%w: %s", differs(now.Key, strconv.Itoa(had), strconv.Itoa(l.Config.Tasks.Samples), now.Given()), keepsGroups)}, nil
	}
	if groups && e.Info.Tasks.Raised {
		return nil, exit.Complaints{fmt.Errorf("tasks.samples: an earlier process added samples to tasks of the run, but %s", keepsGroups)}, nil
	}
	var set *TaskSet
	if streams {
		set, bad, err = e.streamNow(l, stream)
	} else {
		set, bad, err = e.tasksNow(l, fit, stdin, skipped, snapshot, had, groups)
	}
	if err != nil || bad != nil {
		return nil, bad, err
	}
	planned := plannedSamples(l.Config, set)
	switch cut := planned < set.Samples; {
	case planned < e.Info.Tasks.Planned:
		bad = append(bad, fmt.Errorf("tasks.limit: the run has %d planned samples, but the limit allows only %d", e.Info.Tasks.Planned, planned))
	case cut && l.Config.Tasks.Samples > had:
		// With a limit, another number of samples per task would select different samples than
		// before.
		bad = append(bad, fmt.Errorf("tasks.limit: to change from %d to %d samples per task, remove the limit with --limit 0", had, l.Config.Tasks.Samples))
	}
	if bad != nil {
		set.Close()
		return nil, bad, nil
	}
	return set, nil, nil
}

// keepsGroups explains why a run that commits whole groups cannot be resumed with a different
// number of samples.
const keepsGroups = "the size of a started group cannot change in a run with --stream or --until-groups"

// tasksNow merges the run's snapshot with the given tasks. If the given tasks equal the snapshot,
// tasksNow reads the tasks only once. If no tasks are given and the default number of samples is
// unchanged, it reads nothing. If groups is set, the number of samples of a task cannot change.
func (e *Earlier) tasksNow(l *config.Loader, fit *tasks.Fit, stdin io.Reader, skipped func(error), snapshot string, had int, groups bool) (_ *TaskSet, bad exit.Complaints, err error) {
	same := &TaskSet{path: snapshot, own: true, digest: e.Info.Tasks.SHA256, Tasks: e.Info.Tasks.Tasks, Samples: e.Info.Tasks.Samples, Bad: e.Info.Tasks.Bad}
	check := NewTaskCheck(l.Config, skipped)
	given := l.ByKey["tasks.file"].Given() != ""
	if !given && check.samples == had {
		return same, nil, nil
	}
	path := snapshot
	if given {
		path = l.Config.Tasks.File
		if e.Folder != nil {
			check.Dir, check.Mode = e.Folder.Dir, e.Folder.Mode
		}
	}
	fewer := check.samples < had
	if given || fewer {
		check.marks = map[taskHash]taskMark{}
	}
	read := tasks.Read(path, stdin)
	if given { // the run's own tasks have already been checked
		read = fit.Read(read)
	}
	now, err := check.Run(read)
	if err != nil {
		return nil, nil, err
	}
	defer now.Close()
	unchanged := !given || now.digest == same.digest
	if !unchanged || fewer {
		g := growth{old: snapshot, given: now, marks: check.marks, had: had, now: check.samples, groups: groups}
		if g.spool, err = newSpool(check.Dir, check.Mode); err != nil {
			return nil, nil, err
		}
		set, bad, err := g.grow()
		if !unchanged || err != nil || bad != nil {
			return set, bad, err
		}
		set.Close()
	}
	same.raised = check.samples > had && now.Samples > same.Samples
	same.Tasks, same.Samples = now.Tasks, now.Samples
	if given {
		same.Bad = now.Bad
	}
	return same, nil, nil
}

// NewTaskCheck returns a check for this invocation's tasks, without a spool. The check calls
// skipped for each task that it skips.
func NewTaskCheck(c *config.Config, skipped func(error)) *TaskCheck {
	check := &TaskCheck{samples: c.Tasks.Samples, skipBad: c.Tasks.SkipBad, skipped: skipped}
	if c.Tasks.File == "-" { // standard input can be endless
		check.limit = c.Tasks.Limit
	}
	return check
}

// taskSettings returns the tasks.* settings of the last invocation.
func (i *Info) taskSettings() (*config.Config, error) {
	l := config.NewLoader(func(string) string { return "" })
	l.FromRun(i.Config, "tasks")
	return l.Config, l.Bad.Err()
}

// Update writes the changes made by an invocation. It first writes run.json, with the digests of
// the old and the new tasks. If tasks were added, it then writes the tasks.
func (f *Folder) Update(info Info, tasks *TaskSet) error {
	err := f.writeRun(info)
	if err == nil && !tasks.own {
		err = f.writeTasks(tasks)
	}
	return exit.With(exit.Storage, err)
}

// Claimed returns the policy version that the user set for the run's last invocation, or "".
func (e *Earlier) Claimed() string {
	var text string
	if json.Unmarshal(e.Info.Config["tokens"]["policy_version"], &text) != nil || !config.ClaimedVersion(text) {
		return ""
	}
	return text
}

// Proven returns the versions, by URL, of the servers that are known to produce rows. If the run
// has rows and its tokenizer and chat template are unchanged, these are all its servers. Otherwise
// no server is known to produce rows.
func (e *Earlier) Proven(dir string, model *Model) (map[string]string, error) {
	if e == nil || !e.Info.Model.Same(model) {
		return nil, nil
	}
	has, err := HasRows(dir)
	if err != nil || !has {
		return nil, err
	}
	out := map[string]string{}
	for _, s := range e.Info.Servers {
		out[s.URL] = s.Version
	}
	return out, nil
}

// TurnsHavePrompts reports whether the run's prompts come from the servers' replies, or returns nil
// if this is unknown. If the run has neither a tokenizer nor a tap, its prompts have no other
// source. Otherwise the rows in the last shard show the source.
func TurnsHavePrompts(c *config.Config, dir string, model *Model) (*bool, error) {
	switch c.Tokens.Prompts {
	case config.PromptsAuto:
	case config.PromptsTurns:
		return new(true), nil
	default:
		return new(false), nil
	}
	if model == nil && len(c.Tokens.Tap) == 0 {
		return new(true), nil
	}
	log, err := sink.ReadLogIn(nil, dir, func(*sink.Commit) {})
	if err != nil {
		return nil, ReadError(dir, err)
	}
	var last sink.Shard
	for last = range log.Shards(sink.KindData) {
	}
	if last.Rows == 0 {
		return nil, nil
	}
	for row, err := range log.Facts(last) {
		if err != nil {
			return nil, nil // rollout verify reports the damage
		}
		if !slices.Contains(row.Flags, tokenize.FlagReattached.String()) {
			return new(row.PromptSource == tokenize.SourceTurns.String()), nil
		}
	}
	return nil, nil
}

func plannedSamples(c *config.Config, tasks *TaskSet) int {
	if c.Tasks.Limit > 0 {
		return min(tasks.Samples, c.Tasks.Limit)
	}
	return tasks.Samples
}
