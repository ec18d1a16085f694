package sink

import (
	"iter"
	"reflect"
	"sync"
)

// rowFacts and failureFacts are the columns that describe a row. output_ids of failures is the only
// one with a list entry per token.
var (
	rowFacts     = sync.OnceValue(func() part[StoredRow] { return newPart[StoredRow](isFact) })
	failureFacts = sync.OnceValue(func() part[StoredFailure] { return newPart[StoredFailure](isFact) })
)

func isFact(f reflect.StructField) bool { return f.Tag.Get("read") == "facts" }

// Facts is like Rows but leaves large columns empty, and does not read them from a Parquet shard:
// InputIDs, LossMask, Logprobs, Versions, FinishReasons, RewardDetails, Messages, Metadata, the
// sampling parameters, Model and the ids of rollouts, runs and steps. The last element of
// TurnOffsets is T. A row is valid until the next row.
func (l *Log) Facts(s Shard) iter.Seq2[*StoredRow, error] {
	return shardRows(l, s, KindData, 0, rowFacts().others, rowFacts().read)
}

// FailureFacts is Facts for a failure shard: RolloutID, Logprobs, Text, RunIDs, Model, Messages and
// Metadata are empty.
func (l *Log) FailureFacts(s Shard) iter.Seq2[*StoredFailure, error] {
	return shardRows(l, s, KindFailures, 0, failureFacts().others, failureFacts().read)
}
