package sink

import (
	"iter"
	"sync"
)

// rowFacts and failureFacts have the columns without an entry per token and without long text.
var (
	rowFacts     = sync.OnceValue(func() part[StoredRow] { return newPart[StoredRow]("facts") })
	failureFacts = sync.OnceValue(func() part[StoredFailure] { return newPart[StoredFailure]("facts") })
)

// Facts is Rows without large columns. It leaves these empty, and does not read them from a Parquet
// shard: InputIDs, LossMask, Logprobs, Versions, TurnRoles, FinishReasons, RewardDetails, Divergence,
// Messages, Metadata, the sampling parameters, Model and the ids of rollouts, runs and steps. The last
// of TurnOffsets is T. A row is valid until the next one.
func (l *Log) Facts(s Shard) iter.Seq2[*StoredRow, error] {
	return facts(l, s, KindData, rowFacts())
}

// FailureFacts is Facts for a shard of failures: RolloutID, OutputIDs, Logprobs, Text, RunIDs, Model,
// Messages and Metadata are empty.
func (l *Log) FailureFacts(s Shard) iter.Seq2[*StoredFailure, error] {
	return facts(l, s, KindFailures, failureFacts())
}

// facts yields the rows of a shard with the columns of a part.
func facts[T any](l *Log, s Shard, kind Kind, part part[T]) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		more := func(row *T) bool { return yield(row, nil) }
		inArrow, isRow := any(more).(func(*StoredRow) bool)
		var err error
		switch {
		case s.Kind == kind && s.Format == Parquet:
			err = l.factsOf(s, func(f File, in rowRange) error {
				return part.read(f, in.shard.Bytes, in.shard.Rows, window(in, more))
			})
		case s.Kind == kind && isRow:
			err = l.factsOf(s, func(f File, in rowRange) error {
				return readArrowPart(f, in.shard.Bytes, in.shard.Rows, part.others, window(in, inArrow))
			})
		default:
			err = readShard(l, s, kind, yield) // returns the error of a wrong kind or format
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

// factsOf opens the rows of a shard, checks the file's digest, and calls read.
func (l *Log) factsOf(s Shard, read func(File, rowRange) error) error {
	corrupt := func(err error) error { return corruptShard(s, err) }
	f, in, err := l.openChecked(s)
	if err != nil {
		return corrupt(err)
	}
	defer func() { _ = f.Close() }() // read-only
	if err := read(f, in); err != nil {
		return corrupt(err)
	}
	return nil
}
