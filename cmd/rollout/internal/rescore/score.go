package rescore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/reward"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

// A job is one sample.
type job struct {
	rows   []sink.StoredRow
	lost   bool // see lostAnswer
	group  string
	index  int32
	last   bool // with a scorer of groups: it is the last sample of its group
	score  sink.StoredScore
	failed error // why the scorer failed; nil if it did not
}

// A unit is what a scorer scores together: one sample, or the samples of a group. The reader makes it, one
// worker scores it, and the writer writes it, in the order of the log.
type unit struct {
	jobs  []*job
	err   error         // ends the rescore
	ready chan struct{} // closed when the samples are scored
}

// read passes every sample with rows that the set lacks to yield, until yield returns false. It keeps the
// rows of one sample in memory, and the failed calls of one commit. With a scorer of groups, it passes whole
// groups, and keeps the tokens of the groups whose samples are not all read.
func (r *Rescore) read(log *sink.Log, yield func(*unit) bool) error {
	each := func(j *job) bool { return yield(&unit{jobs: []*job{j}, ready: make(chan struct{})}) }
	if r.scoring.Group != nil {
		open := map[string][]*job{}
		each = func(j *job) bool {
			slim(j.rows)
			all := append(open[j.group], j)
			if j.last = j.group == "" || r.census.done(j.group); !j.last {
				open[j.group] = all
				return true
			}
			delete(open, j.group)
			slices.SortFunc(all, func(a, b *job) int { return cmp.Compare(a.index, b.index) })
			for i, j := range all {
				j.last = i == len(all)-1
			}
			return yield(&unit{jobs: all, ready: make(chan struct{})})
		}
	}
	return r.readJobs(log, each)
}

// slim drops the columns of the rows that no scorer needs, to save memory.
func slim(rows []sink.StoredRow) {
	for i := range rows {
		rows[i].LossMask, rows[i].Logprobs, rows[i].Versions = nil, nil, nil
	}
}

func (r *Rescore) readJobs(log *sink.Log, yield func(*job) bool) error {
	for i := range log.Commits {
		calls, err := failedCalls(log, &log.Commits[i])
		if err != nil {
			return err
		}
		for _, shard := range log.Commits[i].Shards {
			if shard.Kind != sink.KindData {
				continue
			}
			if more, err := r.readShard(log, shard, calls, yield); err != nil || !more {
				return err
			}
		}
	}
	return nil
}

// failedCalls returns the calls of each sample in a commit that are in no row.
func failedCalls(log *sink.Log, c *sink.Commit) (map[string][]failedCall, error) {
	calls := map[string][]failedCall{}
	for _, shard := range c.Shards {
		if shard.Kind != sink.KindFailures {
			continue
		}
		for f, err := range log.FailureFacts(shard) {
			if err != nil {
				return nil, err
			}
			if f.Call >= 0 {
				key := strings.Clone(f.SampleKey)
				calls[key] = append(calls[key], failedCall{int(f.Call), tokenize.Untrained(f.Reason, f.Call)})
			}
		}
	}
	return calls, nil
}

func (r *Rescore) readShard(log *sink.Log, shard sink.Shard, calls map[string][]failedCall, yield func(*job) bool) (more bool, err error) {
	var open *job // its rows follow each other
	for row, err := range log.Rows(shard) {
		if err != nil {
			return false, err
		}
		if open == nil || open.score.SampleKey != row.SampleKey {
			if open != nil && !r.pass(open, calls, yield) {
				return false, nil
			}
			open = &job{
				group: row.GroupID, index: row.SampleIndex,
				score: sink.StoredScore{SampleKey: row.SampleKey, Keep: row.Keep, KeepReason: row.KeepReason},
			}
		}
		open.rows = append(open.rows, *row)
	}
	return open == nil || r.pass(open, calls, yield), nil
}

// pass passes a sample to yield, unless an earlier process has scored it.
func (r *Rescore) pass(j *job, calls map[string][]failedCall, yield func(*job) bool) bool {
	if r.writer.Has(j.score.SampleKey) {
		return true
	}
	j.lost = lostAnswer(j.rows, calls[j.score.SampleKey])
	return yield(j)
}

// scoreAll scores the samples with several workers, and passes them to write in the order of the log. It
// returns the first error of the reader, of a worker or of write, or the cause of ctx. No goroutine is left.
func (r *Rescore) scoreAll(ctx context.Context, log *sink.Log, write func(*job) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	work, ordered := make(chan *unit), make(chan *unit, 2*r.workers)
	var all sync.WaitGroup
	all.Go(func() {
		defer close(ordered)
		defer close(work)
		err := r.read(log, func(u *unit) bool {
			for _, to := range []chan *unit{ordered, work} {
				select {
				case to <- u:
				case <-ctx.Done():
					return false
				}
			}
			return true
		})
		if err != nil {
			cancel(err)
		}
	})
	for range r.workers {
		all.Go(func() {
			for u := range work {
				u.err = r.score(ctx, u)
				close(u.ready)
			}
		})
	}
	err := func() error {
		for u := range ordered {
			select {
			case <-u.ready:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			for _, j := range u.jobs {
				if u.err == nil {
					u.err = write(j)
				}
			}
			if u.err != nil {
				return u.err
			}
		}
		return context.Cause(ctx)
	}()
	cancel(errDone)
	all.Wait()
	return err
}

var errDone = errors.New("rescore: done")

// score scores the samples of a unit, as a Collector does. An error ends the rescore.
func (r *Rescore) score(ctx context.Context, u *unit) error {
	var group []reward.Rollout
	var jobs []*job // of group
	for _, j := range u.jobs {
		t, err := r.tasks.of(&j.rows[0])
		if err != nil {
			return err
		}
		if j.lost {
			lost, _ := collector.Settle(collector.Reward{}, errLost)
			j.settle(lost)
		} else {
			reply, calls := r.decoder.reply(j.rows)
			r.scoring.Splitter.Split(reply, calls)
			group, jobs = append(group, reward.Rollout{Task: t, Reply: reply}), append(jobs, j)
		}
		j.rows = nil
	}
	if len(group) == 0 {
		return nil
	}
	scorer := r.scoring.Group
	if scorer == nil {
		scorer = reward.Each(r.scoring.Scorer)
	}
	results := scorer.ScoreGroup(ctx, group)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for i, result := range results {
		settled, err := collector.Settle(result.Reward, result.Err)
		if err != nil && !errors.Is(err, collector.ErrNoAnswer) {
			jobs[i].failed, jobs[i].score.Failed = err, true
		}
		jobs[i].settle(settled)
	}
	return nil
}

func (j *job) settle(r collector.Reward) {
	j.score.Reward = r.Value
	if len(r.Details) > 0 {
		j.score.RewardDetails = new(strings.ToValidUTF8(string(r.Details), "\uFFFD"))
	}
}
