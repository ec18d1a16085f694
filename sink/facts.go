package sink

import (
	"iter"
	"reflect"
	"sync"
)

// rowFacts and failureFacts select the columns whose fields have the tag read:"facts". Among these
// columns, only output_ids in failures has one list element per token.
var (
	rowFacts     = sync.OnceValue(func() part[StoredRow] { return newPart[StoredRow](isFact) })
	failureFacts = sync.OnceValue(func() part[StoredFailure] { return newPart[StoredFailure](isFact) })
)

func isFact(f reflect.StructField) bool { return f.Tag.Get("read") == "facts" }

// Facts is like Rows but leaves these fields empty: InputIDs, LossMask, Logprobs, Versions,
// FinishReasons, RewardDetails, Messages, Metadata, the sampling parameters, Model and the ids of
// rollouts, runs and steps. Facts does not read the columns of these fields from a Parquet shard.
// The last element of TurnOffsets is T, the number of tokens. A row is valid only until the next
// row is yielded.
func (l *Log) Facts(s Shard) iter.Seq2[*StoredRow, error] {
	return shardRows(l, s, KindData, 0, rowFacts().others, rowFacts().read)
}

// FailureFacts is like Facts, but reads a failure shard. It leaves RolloutID, Logprobs, Text,
// RunIDs, Model, Messages and Metadata empty.
func (l *Log) FailureFacts(s Shard) iter.Seq2[*StoredFailure, error] {
	return shardRows(l, s, KindFailures, 0, failureFacts().others, failureFacts().read)
}
