package sink

import (
	"iter"
	"sync"
)

// The parts that facts are: what a row says about the whole of it. No column of them has an
// entry per token, and none a long text.
var (
	rowFacts     = sync.OnceValue(func() part[StoredRow] { return newPart[StoredRow]("facts") })
	failureFacts = sync.OnceValue(func() part[StoredFailure] { return newPart[StoredFailure]("facts") })
)

// Facts is Rows without what is large: InputIDs, LossMask, Logprobs, Versions,
// TurnRoles, FinishReasons, RewardDetails, Divergence, Messages, Metadata and the
// ids of runs and steps are empty, and of a Parquet shard they are not even read.
// The last of TurnOffsets is T. A row is valid until the next one.
func (l *Log) Facts(s Shard) iter.Seq2[*StoredRow, error] {
	return facts(l, s, KindData, rowFacts())
}

// FailureFacts is Facts for a shard of failures: OutputIDs, Logprobs, Text, RunIDs,
// Model, Messages and Metadata are empty.
func (l *Log) FailureFacts(s Shard) iter.Seq2[*StoredFailure, error] {
	return facts(l, s, KindFailures, failureFacts())
}

// facts yields a part of the rows of a shard.
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
			err = readShard(l, s, kind, yield) // says what is wrong
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

// factsOf opens what has the rows of a shard, whose digest is right.
func (l *Log) factsOf(s Shard, read func(File, rowRange) error) error {
	corrupt := func(err error) error { return corruptShard(s, err) }
	f, in, err := l.openChecked(s)
	if err != nil {
		return corrupt(err)
	}
	defer func() { _ = f.Close() }() // it was read only
	if err := read(f, in); err != nil {
		return corrupt(err)
	}
	return nil
}
