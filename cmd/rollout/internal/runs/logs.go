package runs

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/fleet"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/store"
	"github.com/rollout-rl/rollout/tokenize"
)

// A Dataset is the dataset of a run, or of a partition with tasks.
type Dataset struct {
	Name      string      // path of the partition in the fleet; "" if there are no partitions
	Partition int         // -1 if there are no partitions
	Store     store.Store // nil: the folder of the run
	dir       string
}

// A Log is the log of a dataset.
type Log struct {
	*sink.Log
	of *Dataset
}

// With returns the log with other commits.
func (l *Log) With(commits []sink.Commit) *Log {
	own := *l.Log
	own.Commits = commits
	return &Log{&own, l.of}
}

// Wrap adds the name of the partition to an error from reading the log's shards.
func (l *Log) Wrap(err error) error { return l.of.Wrap(err) }

// Log reads the log of the dataset. If it is damaged, the result contains the entries before the damage.
func (d *Dataset) Log() (*Log, error) {
	log, err := d.read(nil)
	return &Log{log, d}, err
}

// read calls [sink.ReadLogIn]. It also returns a *sink.CorruptError if an entry in a store is missing.
func (d *Dataset) read(each func(*sink.Commit)) (*sink.Log, error) {
	log, err := sink.ReadLogIn(d.Store, d.dir, each)
	return log, missing(err)
}

// missing turns the error for an entry that a store has lost into a *sink.CorruptError.
func missing(err error) error {
	if _, ok := errors.AsType[*sink.ShardError](err); ok && errors.Is(err, fs.ErrNotExist) {
		return &sink.CorruptError{Path: "_commits", Row: -1, Err: err}
	}
	return err
}

// Wrap adds the name of the partition to an error. A nil Dataset is not a partition.
func (d *Dataset) Wrap(err error) error {
	if d == nil || d.Partition < 0 {
		return err
	}
	return fleet.InPartition(d.Partition, err)
}

// Shards yields the shards of several logs, of all kinds if none is given.
func Shards(logs []*Log, kinds ...sink.Kind) iter.Seq2[*Log, sink.Shard] {
	return func(yield func(*Log, sink.Shard) bool) {
		for _, log := range logs {
			for i := range log.Commits {
				for _, s := range log.Commits[i].Shards {
					if (len(kinds) == 0 || slices.Contains(kinds, s.Kind)) && !yield(log, s) {
						return
					}
				}
			}
		}
	}
}

// Unshown returns, by sample key, the counts of the calls that the server's answer does not show.
// For each sample, only the last commit counts.
func Unshown(logs []*Log) map[string]tokenize.Unshown {
	all := map[string]tokenize.Unshown{}
	for _, log := range logs {
		for i := range log.Commits {
			for _, s := range log.Commits[i].Samples {
				if s.Unshown != (tokenize.Unshown{}) {
					all[s.Key] = s.Unshown
				} else if len(all) > 0 {
					delete(all, s.Key)
				}
			}
		}
	}
	return all
}

// readers is the number of datasets of a fleet that are read at the same time.
const readers = 8

// Each calls read for each dataset, several at the same time. i is the number of the dataset. Each returns the
// first error, but damage of a partition does not end it: damage contains these errors in the order of the
// partitions. All errors name the partition.
func (r *Run) Each(ctx context.Context, read func(ctx context.Context, i int, d *Dataset) error) (damage []error, err error) {
	found := make([]error, len(r.Datasets))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readers)
	for i := range r.Datasets {
		g.Go(func() error {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			d := &r.Datasets[i]
			err := d.Wrap(read(ctx, i, d))
			if r.Fleet != nil && errors.Is(err, sink.ErrCorrupt) {
				found[i], err = err, nil
			}
			return err
		})
	}
	err = g.Wait()
	for _, err := range found {
		if err != nil {
			damage = append(damage, err)
		}
	}
	return damage, err
}

// Logs reads the logs of all datasets. If partitions are damaged, their logs contain the entries before the
// damage. Their rows have the rewards of the selected scores set. The error has an exit code.
func (r *Run) Logs(ctx context.Context) (logs []*Log, damage []error, err error) {
	logs = make([]*Log, len(r.Datasets))
	scores, err := r.readScores()
	if err != nil {
		return nil, nil, err
	}
	damage, err = r.Each(ctx, func(_ context.Context, i int, d *Dataset) (err error) {
		if logs[i], err = d.Log(); logs[i].Log != nil {
			logs[i].UseScores(scores)
		}
		return err
	})
	if err != nil {
		return nil, nil, r.Error(err)
	}
	return logs, damage, nil
}

// Follow reads the entries that were added to the logs since Logs or Follow read them. The errors are the
// same as in Logs.
func (r *Run) Follow(ctx context.Context, logs []*Log) (damage []error, err error) {
	damage, err = r.Each(ctx, func(_ context.Context, i int, _ *Dataset) error { return missing(logs[i].Follow()) })
	if err != nil {
		return nil, r.Error(err)
	}
	return damage, nil
}
