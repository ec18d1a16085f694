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

func facts[T any](l *Log, s Shard, kind Kind, part part[T]) iter.Seq2[*T, error] {
	return shardRows(l, s, kind, part.others, func(f File, s Shard, yield func(*T) bool) error {
		return part.read(f, s.Bytes, s.Rows, yield)
	})
}
