package rescore

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/scoring"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
)

// inPlace adds a scores set to the run.
func (r *Rescore) inPlace(ctx context.Context, folder *runfolder.Folder) error {
	info := runfolder.ScoresInfo{RunID: r.info.ID, Scorer: r.scorer, Last: r.census.last, Samples: r.census.samples}
	dir, resumed, err := folder.OpenScores(&info, r.options.Say)
	if err != nil {
		return err
	}
	r.result.Set = info.Name
	if resumed {
		r.options.Say("continuing scores set %s of %s", info.Name, info.CreatedAt.Local().Format(time.DateTime))
	}
	fs := sink.OSMode(folder.Mode)
	if err = r.fill(ctx, dir, fs); err == nil {
		err = storage(sink.WriteCard(r.dir, sink.Config{RunID: r.info.ID, FS: fs}))
	}
	if _, ok := errors.AsType[*collector.ScorerError](err); ok {
		err = errors.Join(err, storage(os.RemoveAll(dir))) // it has no reward
	}
	return err
}

// fill scores all samples that the scores set in dir lacks, and completes the set.
func (r *Rescore) fill(ctx context.Context, dir string, fs sink.FS) (err error) {
	began := time.Now()
	if r.writer, err = sink.OpenScores(dir, sink.Config{RunID: r.info.ID, FS: fs}); err != nil {
		return runfolder.ReadError(dir, err)
	}
	log, err := sink.ReadLogIn(nil, r.dir, func(*sink.Commit) {}) // drops the lists of samples
	if err != nil {
		return runfolder.ReadError(r.dir, err)
	}
	n := &r.result
	n.Samples = r.census.samples
	r.writer.Held(func(s *sink.StoredScore) {
		n.Earlier++
		n.add(s)
		n.addKeep(s)
	})
	reported := time.Now()
	err = r.scoreAll(ctx, log, func(j *job) error {
		if n.Took = time.Since(began); time.Since(reported) > progressEvery {
			reported = time.Now()
			r.options.Say("scored %s of %s samples (%s/s)", format.Count(int64(n.done())), format.Count(int64(n.Samples)), format.Rate(n.Rate()))
		}
		return r.write(j)
	})
	n.Took = time.Since(began)
	if err == nil { // a set without any reward must not replace the rewards of the run
		err = r.allFailed(r.loader.Config.Run.FailOnError.Allowed(n.Samples))
	}
	interrupted := ctx.Err() != nil
	switch {
	case err == nil:
		err = storage(r.writer.Seal())
	case interrupted:
		err = errors.Join(ctxError(ctx, err), storage(r.writer.Commit()))
	}
	r.writer.Abandon()
	if interrupted && err != nil && exit.Code(err) == exit.Interrupted && r.result.Set != "" {
		err = exit.Hint(err, "the same command continues")
	}
	if errors.Is(err, sink.ErrCorrupt) {
		err = runfolder.ReadError(r.dir, err)
	}
	return err
}

const progressEvery = 10 * time.Second

func storage(err error) error { return exit.With(exit.Storage, err) }

// ctxError returns the error for an interrupt, if ctx has ended.
func ctxError(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	return exit.With(exit.Interrupted, errors.New("interrupted"))
}

// write adds a score to its group. When all samples of the group are scored, it writes the group.
func (r *Rescore) write(j *job) error {
	r.result.add(&j.score)
	if err := r.checkFailures(j); err != nil {
		return err
	}
	g := r.groups[j.group]
	if g == nil {
		g = &scoredGroup{}
		r.groups[j.group] = g
	}
	g.add(j)
	if !r.lastOf(j) {
		return nil
	}
	delete(r.groups, j.group)
	g.filter(r.loader.Config.Reward.MinStd, j.group != "" && r.census.whole.Whole(j.group))
	for _, s := range g.scores {
		r.result.addKeep(s)
		if r.writer.Len() == 0 {
			r.since = time.Now()
		}
		if err := r.writer.Add(s); err != nil {
			return storage(err)
		}
	}
	if r.writer.Len() >= commitScores || r.writer.Bytes() >= commitBytes || time.Since(r.since) >= commitAge {
		return storage(r.writer.Commit())
	}
	return nil
}

// A commit ends at the end of a group that reaches one of these limits. The first two make the shards of a
// fast scorer the same each time. The last one bounds what a kill costs with a slow scorer.
const (
	commitScores = 8192
	commitBytes  = 8 << 20
	commitAge    = 30 * time.Second
)

// lastOf reports whether no other sample of j's group has to be scored before the group is written. If no filter
// needs the group, samples are written alone, so that an interrupt keeps all of them.
func (r *Rescore) lastOf(j *job) bool {
	switch {
	case r.scoring.Group != nil:
		return j.last // the reader counts
	case r.loader.Config.Reward.MinStd == 0:
		return true
	}
	return j.group == "" || r.census.done(j.group)
}

// checkFailures reports the first sample whose scorer failed. It returns an error if the scorer has failed on every
// sample so far.
func (r *Rescore) checkFailures(j *job) error {
	n := &r.result
	if j.failed == nil {
		return nil
	}
	if r.failed == nil {
		r.options.Say("sample %s cannot be scored: %s (only the first such sample is reported)", j.score.SampleKey, termsafe.Text(j.failed.Error(), 200))
	}
	r.failed = j.failed
	return r.allFailed(scoring.MaxUnscored(r.loader.Config, n.Samples))
}

// allFailed returns an error if the scorer has failed more often than allowed, and no sample has a reward.
func (r *Rescore) allFailed(allowed int) error {
	if r.failed == nil || r.result.Scored > 0 || r.result.Failures <= allowed {
		return nil
	}
	return &collector.ScorerError{Samples: r.result.Failures, Err: r.failed}
}
