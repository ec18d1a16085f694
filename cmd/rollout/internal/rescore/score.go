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

// read passes every sample with rows that the set lacks to yield, until yield returns false. Failed calls of a
// sample follow its rows.
func (r *Rescore) read(log *sink.Log, yield func(*job) bool) error {
	var open *job
	var failures []sink.StoredFailure
	flush := func() bool {
		if open == nil {
			return true
		}
		j := open
		j.lost = lostAnswer(j.rows, failures)
		open, failures = nil, failures[:0]
		return yield(j)
	}
	for s, err := range log.Stored() {
		if err != nil {
			return err
		}
		if open != nil && open.score.SampleKey == s.Key {
			open.rows, failures = append(open.rows, s.Rows...), append(failures, s.Failures...)
			continue
		}
		if !flush() {
			return nil
		}
		if len(s.Rows) == 0 || r.has(s.Key) {
			continue
		}
		row := &s.Rows[0]
		open = &job{
			rows: s.Rows, group: s.Group.ID, index: s.Index, ready: make(chan struct{}),
			score: sink.StoredScore{SampleKey: s.Key, Keep: row.Keep, KeepReason: row.KeepReason},
		}
	}
	flush()
	return nil
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
