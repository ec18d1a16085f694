package sink

import (
	"errors"
	"io/fs"
	"iter"

	"github.com/rollout-rl/rollout/tokenize"
)

// A WaitingSample is a durable sample in the write-ahead log that is not yet in a commit. The
// running process or the next Create will commit the sample. With Config.CommitGroups, the sample
// is committed when its group is whole. Rows and Failures are equal to the rows and failures that
// the shards will contain, except that they lack the decisions of Config.Judge.
type WaitingSample struct {
	Key      string
	Attempt  int32
	Rows     []StoredRow
	Failures []StoredFailure
}

// Waiting yields the samples in the write-ahead log that are not in any commit of l. The caller
// owns each sample. If a part of the write-ahead log is damaged, Waiting yields a *CorruptError
// and then continues with the samples after the damage.
//
// A running process can commit samples and delete their segments at any moment. To get each sample
// exactly once, call [Log.Follow] afterwards. If Follow finds new commits, discard the samples and
// start over.
func (l *Log) Waiting() iter.Seq2[WaitingSample, error] {
	return func(yield func(WaitingSample, error) bool) {
		names, err := walSegments(l.fs, l.dir)
		if err != nil {
			yield(WaitingSample{}, err)
			return
		}
		if len(names) == 0 {
			return
		}
		known, err := l.attempts()
		if err != nil {
			yield(WaitingSample{}, err)
			return
		}
		stop := errors.New("stop")
		for i, name := range names {
			err := readSegment(l.fs, l.dir, name, i == len(names)-1, func(part segmentPart) error {
				more := true
				switch {
				case part.torn != nil: // these bytes were never durable
				case part.corrupt != nil:
					more = yield(WaitingSample{}, corruptSegment(name, part.corrupt))
				case !known.has(part.sample):
					known.add(part.sample.Key, part.sample.Attempt, failed(part.sample))
					w := waiting(part.sample)
					for i := range w.Rows {
						if err := l.scores.apply(&w.Rows[i], true); err != nil {
							return err
						}
					}
					more = yield(w, nil)
				}
				if !more {
					return stop
				}
				return nil
			})
			switch {
			case err == stop:
				return
			case err == nil, errors.Is(err, fs.ErrNotExist): // the samples were committed and the segment was deleted in the meantime
			case !yield(WaitingSample{}, err):
				return
			}
		}
	}
}

func waiting(s *tokenize.Sample) WaitingSample {
	w := WaitingSample{Key: s.Key, Attempt: s.Attempt, Rows: make([]StoredRow, len(s.Rows)), Failures: make([]StoredFailure, len(s.Failures))}
	for i := range w.Rows {
		w.Rows[i].set(s, i, new(rowMemory))
	}
	for i := range w.Failures {
		w.Failures[i].set(s, i)
	}
	return w
}
