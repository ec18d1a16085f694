package rescore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

// A job is one sample. The reader makes it, one worker scores it, and the writer writes it, in the order of
// the log.
type job struct {
	rows   []sink.StoredRow
	lost   bool // see lostAnswer
	group  string
	index  int32
	score  sink.StoredScore
	failed error         // why the scorer failed; nil if it did not
	err    error         // ends the rescore
	ready  chan struct{} // closed when the sample is scored
}

// read passes every sample with rows that the set lacks to yield, until yield returns false. It keeps the
// rows of one sample in memory, and the failed calls of one commit.
func (r *Rescore) read(log *sink.Log, yield func(*job) bool) error {
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
				group: row.GroupID, index: row.SampleIndex, ready: make(chan struct{}),
				score: sink.StoredScore{SampleKey: row.SampleKey, Keep: row.Keep, KeepReason: row.KeepReason},
			}
		}
		open.rows = append(open.rows, *row)
	}
	return open == nil || r.pass(open, calls, yield), nil
}

// pass passes a sample to yield, unless an earlier process has scored it.
func (r *Rescore) pass(j *job, calls map[string][]failedCall, yield func(*job) bool) bool {
	if r.has(j.score.SampleKey) {
		return true
	}
	j.lost = lostAnswer(j.rows, calls[j.score.SampleKey])
	return yield(j)
}

// scoreAll scores the samples with several workers, and passes them to write in the order of the log. It
// returns the first error of the reader, of a worker or of write, or the cause of ctx. No goroutine is left.
func (r *Rescore) scoreAll(ctx context.Context, log *sink.Log, write func(*job) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	work, ordered := make(chan *job), make(chan *job, 2*r.workers)
	var all sync.WaitGroup
	all.Go(func() {
		defer close(ordered)
		defer close(work)
		err := r.read(log, func(j *job) bool {
			for _, to := range []chan *job{ordered, work} {
				select {
				case to <- j:
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
			for j := range work {
				j.err = r.score(ctx, j)
				j.rows = nil
				close(j.ready)
			}
		})
	}
	err := func() error {
		for j := range ordered {
			select {
			case <-j.ready:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if j.err == nil {
				j.err = write(j)
			}
			if j.err != nil {
				return j.err
			}
		}
		return context.Cause(ctx)
	}()
	cancel(errDone)
	all.Wait()
	return err
}

var errDone = errors.New("rescore: done")

// score scores one sample, as a Collector does. An error ends the rescore.
func (r *Rescore) score(ctx context.Context, j *job) error {
	t, err := r.tasks.of(&j.rows[0])
	if err != nil {
		return err
	}
	if j.lost {
		j.score.RewardDetails = errorDetails(errLost)
		return nil
	}
	reply, calls := r.decoder.reply(t, j.rows)
	r.scoring.Splitter.Split(reply, calls)
	reward, err := r.scoring.Scorer.Score(ctx, t, reply)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if v := reward.Value; err == nil && v != nil && (math.IsNaN(*v) || math.IsInf(*v, 0)) {
		err = fmt.Errorf("the scorer returned %v, want a finite number", *v)
	}
	if err != nil {
		j.score.RewardDetails = errorDetails(err)
		if !errors.Is(err, collector.ErrNoAnswer) {
			j.failed = err
		}
		return nil
	}
	j.score.Reward = reward.Value
	if len(reward.Details) > 0 {
		j.score.RewardDetails = new(strings.ToValidUTF8(string(reward.Details), "\uFFFD"))
	}
	return nil
}

func errorDetails(err error) *string {
	text := strings.Join(strings.Fields(strings.ToValidUTF8(err.Error(), "\uFFFD")), " ")
	raw, _ := json.Marshal(struct { // cannot fail
		Error string `json:"error"`
	}{text})
	return new(string(raw))
}

// A commit ends at the end of a group that reaches one of these limits. The first two make the shards of a
// fast scorer the same each time. The last one bounds what a kill costs with a slow scorer.
const (
	commitScores = 8192
	commitBytes  = 8 << 20
	commitAge    = 30 * time.Second
)
