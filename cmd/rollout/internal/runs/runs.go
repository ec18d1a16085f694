// Package runs opens the runs that the reading verbs show: in a folder, in a bucket, or a fleet. A fleet has
// one dataset per partition, and reads as one run.
package runs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/fleet"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/model"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/report"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/store"
)

// A Run is a run that is read.
type Run struct {
	Location string         // as the user gave it
	Dir      string         // "" if the run is not in a folder of its own
	Info     runfolder.Info // of a fleet: what fleet.json says
	Fleet    *fleet.Fleet   // nil if the run is not a fleet
	Store    store.Store    // nil if the run is in a folder of its own
	Datasets []Dataset
	// Scores is the name of the scores set whose rewards the rows get; see runfolder.ReadScores. The set
	// is read once, so that the rewards of a Run that is read again come from the same set.
	Scores string
	scores struct {
		once sync.Once
		set  *sink.Scores
		err  error
	}
}

// Open opens the run at a location: a folder, or a URL that package store describes. The log receives a line
// when a bucket is away. The error has an exit code.
func Open(ctx context.Context, location string, log *slog.Logger) (*Run, error) {
	r := &Run{Location: location}
	if !store.IsURL(location) {
		if _, err := os.Lstat(filepath.Join(location, fleet.Name)); err != nil {
			return r, r.openFolder()
		}
	}
	objects, err := OpenStore(ctx, location, store.Options{Log: log})
	if err != nil {
		return nil, err
	}
	r.Store = objects
	if r.Fleet, err = fleet.Read(objects); errors.Is(err, fs.ErrNotExist) {
		return r, r.openCopy()
	} else if err != nil {
		return nil, err
	}
	r.Info = runfolder.Info{ID: r.Fleet.ID, CreatedAt: r.Fleet.CreatedAt, Config: r.Fleet.Config, Identity: r.Fleet.Identity, Model: r.Fleet.Model}
	r.Info.Tasks.Planned = r.Fleet.Samples()
	for p, of := range r.Fleet.Partitions {
		r.Info.Tasks.Tasks += of.Tasks
		if of.Tasks > 0 {
			r.Datasets = append(r.Datasets, Dataset{fleet.PartitionName(p), p, fleet.Dataset(objects, p), ""})
		}
	}
	return r, nil
}

// OpenStore opens a store, as [store.Open] does. The error has an exit code.
func OpenStore(ctx context.Context, location string, opts store.Options) (store.Store, error) {
	objects, err := store.Open(ctx, location, opts)
	if errors.Is(err, store.ErrLocation) {
		return nil, exit.With(exit.Usage, err)
	}
	return objects, exit.With(exit.Storage, err)
}

func (r *Run) openFolder() (err error) {
	r.Dir, r.Datasets = r.Location, []Dataset{{Partition: -1, dir: r.Location}}
	if r.Info, err = runfolder.Read(r.Dir); err != nil {
		return err
	}
	if of := r.Info.Fleet; of != nil {
		return exit.Hint(exit.With(exit.Folder, fmt.Errorf("%s is the spool of a worker; the rows are in %s", r.Dir, of.Location)), "pass "+format.Shell(of.Location))
	}
	return nil
}

// openCopy opens the copy of a folder in a store.
func (r *Run) openCopy() error {
	body, err := r.Store.Get(runfolder.RunFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return exit.Hint(exit.With(exit.Folder, fmt.Errorf("%s contains no run (it has neither %s nor %s)", r.Store, fleet.Name, runfolder.RunFile)), "pass the URL that rollout plan got with --out")
	case err != nil:
		return exit.With(exit.Storage, err)
	}
	r.Info, err = runfolder.Decode(r.Store.String()+"/"+runfolder.RunFile, body)
	r.Datasets = []Dataset{{Partition: -1, Store: r.Store}}
	return err
}

// Name returns the name of the run's folder, or the last part of its URL.
func (r *Run) Name() string {
	if r.Dir != "" {
		return runfolder.Name(r.Dir)
	}
	at, _, _ := strings.Cut(r.Location, "?")
	return path.Base(at)
}

// FileMode returns the mode for a file with content of the run, before the umask: users who can read the run's
// folder can read the file. If the run is not in a folder of its own, no other user can.
func (r *Run) FileMode() fs.FileMode {
	if folder, err := os.Stat(r.Dir); r.Dir != "" && err == nil {
		return config.ShareOf(folder).FileMode()
	}
	return config.ShareNone.FileMode()
}

// TokenizerPlace returns where the run's tokenizer is. The error has an exit code.
func (r *Run) TokenizerPlace() (model.Place, error) { return r.Info.TokenizerPlace(r.Dir, r.Store) }

// NeedFolder returns an error if the run is not in a folder of its own. The parameter what names what needs the
// folder, and hint describes what to do instead.
func (r *Run) NeedFolder(what, hint string) error {
	if r.Dir != "" {
		return nil
	}
	kind := ""
	if r.Fleet != nil {
		kind = "the fleet "
	}
	return exit.Hint(exit.Usagef("%s: supported only for a run in a folder, not for %s%s", what, kind, r.Location), hint)
}

// Error adds the exit code, and the hint for damage, to an error from reading the run.
func (r *Run) Error(err error) error {
	if errors.Is(err, sink.ErrCorrupt) {
		return r.Damage([]error{err})
	}
	return runfolder.ReadError(r.Location, err)
}

// Damage returns the error for damaged files of the run, or nil if the list is empty.
func (r *Run) Damage(damage []error) error {
	if len(damage) == 0 {
		return nil
	}
	err := runfolder.DamageError(r.Location, damage)
	if r.Dir != "" {
		return err
	}
	return exit.Refuse(exit.Verify, err, "to list the damage, run rollout verify "+format.Shell(r.Location)+"; "+Restore)
}

// Restore is the remedy for damaged objects in a store.
const Restore = "restore the damaged objects from a copy, or from their earlier versions if the bucket keeps versions"

// Report builds the report of the run. The error has an exit code.
func (r *Run) Report(ctx context.Context, pass float64) (*report.Report, error) {
	scores, err := r.readScores()
	if err != nil {
		return nil, err
	}
	if r.Dir != "" {
		_, running := runfolder.Locked(r.Dir)
		return runfolder.ReadReport(r.Dir, scores, pass, running, false)
	}
	run := r.Info.Reported(pass)
	run.Scores = scores
	if r.Fleet != nil {
		run.Partitions = len(r.Datasets)
	}
	logs, damage := make([]*sink.Log, len(r.Datasets)), []error(nil)
	run.Logs = func(each func(*sink.Commit)) (_ []*sink.Log, err error) {
		var mu sync.Mutex
		damage, err = r.Each(ctx, func(_ context.Context, i int, d *Dataset) (err error) {
			logs[i], err = d.read(func(c *sink.Commit) {
				mu.Lock()
				defer mu.Unlock()
				each(c)
			})
			return err
		})
		return logs, err
	}
	run.Wrap = func(log *sink.Log, err error) error { return r.Datasets[slices.Index(logs, log)].Wrap(err) }
	of, err := report.Read("", run)
	if err != nil {
		return nil, r.Error(err)
	}
	for _, err := range damage {
		of.NotCounted(err)
	}
	return of, nil
}

// readScores reads the selected scores set. It returns nil if the rewards in the rows count.
func (r *Run) readScores() (*sink.Scores, error) {
	of := &r.scores
	of.once.Do(func() {
		switch {
		case r.Fleet == nil:
			of.set, of.err = runfolder.ReadScores(r.Location, r.Store, r.Dir, r.Info.ID, r.Scores)
		case r.Scores != "" && r.Scores != runfolder.CollectedScores:
			of.err = exit.Usagef("--scores: a fleet has no scores sets")
		}
	})
	return of.set, of.err
}

// Rewards returns where the rewards come from, or nil if they are the rewards in the rows. The error has an exit
// code.
func (r *Run) Rewards() (*runfolder.Rewards, error) {
	set, err := r.readScores()
	if err != nil || set == nil {
		return nil, err
	}
	info, err := runfolder.ReadScoresInfo(r.Store, r.Dir, set.Name)
	if err != nil {
		return nil, r.Error(err)
	}
	return &runfolder.Rewards{Set: set.Name, Scorer: info.Scorer}, nil
}
