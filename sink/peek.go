package sink

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"

	"github.com/parquet-go/parquet-go"

	"github.com/rollout-rl/rollout/tokenize"
)

// rowHeads and failureHeads have the columns for a table of rows. None has an entry per token, except
// the output ids of failures, which the table counts.
var (
	rowHeads     = sync.OnceValue(func() part[StoredRow] { return newPart[StoredRow]("heads") })
	failureHeads = sync.OnceValue(func() part[StoredFailure] { return newPart[StoredFailure]("heads") })
)

// Heads is [Log.Rows] for a table, and reads no other columns of a Parquet shard. It sets only
// SampleKey, TaskID, GroupID, SampleIndex, SegmentIndex, SegmentCount, TurnOffsets, TurnRoles, Reward,
// Status, Verification, PromptSource, Divergence, Flags, Unscored, Keep and KeepReason. A row is valid
// until the next one.
func (l *Log) Heads(s Shard) iter.Seq2[*StoredRow, error] {
	return facts(l, s, KindData, rowHeads())
}

// FailureHeads is Heads for a shard of failures. It sets only SampleKey, TaskID, GroupID, SampleIndex,
// Attempt, Class, Stage, Reason, Error, Call, OutputIDs, Status and StopReason.
func (l *Log) FailureHeads(s Shard) iter.Seq2[*StoredFailure, error] {
	return facts(l, s, KindFailures, failureHeads())
}

// TokenCount returns T and the number of tokens with loss mask 1, from the spans and Unscored.
func (r *StoredRow) TokenCount() (total, trained int) {
	for k := range min(len(r.TurnRoles), len(r.TurnOffsets)-1) {
		n := int(r.TurnOffsets[k+1]) - int(r.TurnOffsets[k])
		total += n
		if r.TurnRoles[k] == int8(tokenize.RoleAssistant) {
			trained += n
		}
	}
	return total, trained - int(r.Unscored)
}

// At returns the shard that holds row n of a kind, counted from 0 in the order of the log, and the
// row's number in that shard. ok is false if there are fewer rows.
func (l *Log) At(kind Kind, n int64) (s Shard, row int64, ok bool) {
	if n < 0 {
		return Shard{}, 0, false
	}
	for s := range l.Shards(kind) {
		if n < s.Rows {
			return s, n, true
		}
		n -= s.Rows
	}
	return Shard{}, 0, false
}

// Meta returns a shard's key-values of Config.Meta. It checks the digest; errors are *CorruptError.
func (l *Log) Meta(s Shard) (meta map[string]string, err error) {
	meta = map[string]string{}
	err = l.factsOf(s, func(f File, in rowRange) error {
		if in.shard.Format == Arrow {
			return arrowMeta(f, in.shard.Bytes, meta)
		}
		pf, err := parquet.OpenFile(f, in.shard.Bytes, parquet.SkipBloomFilters(true), parquet.SkipPageIndex(true))
		if err != nil {
			return err
		}
		for _, kv := range pf.Metadata().KeyValueMetadata {
			meta[kv.Key] = kv.Value
		}
		return nil
	})
	for _, own := range []string{metaSchemaVersion, metaRunID, metaKind} {
		delete(meta, own)
	}
	return meta, err
}

// Row returns row n of a data shard, counted from 0, after checking the file's digest. It decodes only
// the pages or the batch with the row. The caller owns the row. Errors are *CorruptError.
func (l *Log) Row(s Shard, n int64) (*StoredRow, error) {
	return rowAt(l, s, KindData, n, arrowRow)
}

// Failure is Row for a shard of failures.
func (l *Log) Failure(s Shard, n int64) (*StoredFailure, error) {
	return rowAt(l, s, KindFailures, n, func(File, int64, int64) (*StoredFailure, error) {
		return nil, errors.New("format arrow has no failures")
	})
}

func rowAt[T any](l *Log, s Shard, kind Kind, n int64, inArrow func(f File, size, n int64) (*T, error)) (row *T, err error) {
	if s.Kind != kind || n < 0 || n >= s.Rows {
		return nil, corruptShard(s, fmt.Errorf("no row %d (%s) in a shard of %d rows (%s)", n, kind, s.Rows, s.Kind))
	}
	err = l.factsOf(s, func(f File, in rowRange) (err error) {
		if in.shard.Format == Arrow {
			row, err = inArrow(f, in.shard.Bytes, in.skip+n)
		} else {
			row, err = parquetRow[T](f, in.shard.Bytes, in.shard.Rows, in.skip+n)
		}
		return err
	})
	return row, err
}

func parquetRow[T any](f File, size, rows, n int64) (row *T, err error) {
	pf, err := openParquet[T](f, size, rows)
	if err != nil {
		return nil, err
	}
	var yielding bool
	defer libraryPanic(&yielding, &err)
	for _, group := range pf.RowGroups() {
		if n >= group.NumRows() {
			n -= group.NumRows()
			continue
		}
		return groupRow[T](group, n)
	}
	return nil, errors.New("the row groups end before the row")
}

func groupRow[T any](group parquet.RowGroup, n int64) (row *T, err error) {
	r := parquet.NewGenericRowGroupReader[T](group, schemaOf[T]())
	defer closeInto(r, &err)
	if err := r.SeekToRow(n); err != nil {
		return nil, err
	}
	one := make([]T, 1)
	k, err := r.Read(one)
	if k == 1 {
		return &one[0], nil
	}
	if err == nil || err == io.EOF {
		err = errors.New("the row group ends before its last row")
	}
	return nil, err
}
