package sink

import (
	"fmt"
	"io"
	"iter"

	"github.com/parquet-go/parquet-go"

	"github.com/rollout-rl/rollout/tokenize"
)

// TokenCount returns the number of tokens in the row, and the number of these tokens with loss
// mask 1. It needs only the spans and Unscored, so it also works for rows from [Log.Facts].
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

// At returns the shard that contains row n of the given kind, and the row's number within that
// shard. The rows of a kind are numbered from 0 in the order of the log. ok is false if the log
// has no row n.
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

// ranged returns a Log that reads a Parquet shard in a bucket by range, and checks a local shard only
// once.
func (l *Log) ranged() *Log {
	by := *l
	by.byRange = true
	return &by
}

// Meta returns the key-value pairs in a shard's metadata that came from Config.Meta, and
// rollout.routed_experts if the shard can have routed experts. It checks the
// shard's digest first, or reads only the footer of a Parquet shard in a bucket that keeps the right
// digest. An error is a *CorruptError or wraps ErrReplaced, or a *ShardError if a bucket cannot be
// read.
func (l *Log) Meta(s Shard) (meta map[string]string, err error) {
	meta = map[string]string{}
	err = l.ranged().factsOf(s, func(f io.ReaderAt, in rowRange) error { return fileMeta(f, in.shard, meta) })
	for _, own := range []string{metaSchemaVersion, metaRunID, metaKind} {
		delete(meta, own)
	}
	return meta, err
}

// fileMeta copies the key-value pairs in the metadata of a shard to meta.
func fileMeta(f io.ReaderAt, s Shard, meta map[string]string) (err error) {
	defer libraryPanic(s.Format.String(), new(bool), &err)
	if s.Format == Arrow {
		return arrowMeta(f, s.Bytes, meta)
	}
	pf, err := parquet.OpenFile(f, s.Bytes, parquet.SkipBloomFilters(true), parquet.SkipPageIndex(true))
	if err != nil {
		return err
	}
	for _, kv := range pf.Metadata().KeyValueMetadata {
		meta[kv.Key] = kv.Value
	}
	return nil
}

// Row returns row n of a data shard, counted from 0. It decodes only the row group or batch that
// contains the row. It checks the digest of a local shard, unless another method of l has found that
// the digest is right. Then it checks only the size, so many rows of a large shard can be read. If a
// bucket keeps the right digest, Row reads only that row group of a Parquet shard. Otherwise it reads
// the whole shard. The caller owns the row. The errors are the same as in Meta.
func (l *Log) Row(s Shard, n int64) (*StoredRow, error) {
	return rowAt(s, KindData, n, l.ranged().rowsFrom(s, n))
}

// Failure is like Row, but for a failure shard.
func (l *Log) Failure(s Shard, n int64) (*StoredFailure, error) {
	return rowAt(s, KindFailures, n, l.ranged().failuresFrom(s, n))
}

// rowAt returns the first row from the iterator rows, which must start at row n of the shard.
func rowAt[T any](s Shard, kind Kind, n int64, rows iter.Seq2[*T, error]) (*T, error) {
	if s.Kind == kind && n >= 0 && n < s.Rows {
		next, stop := iter.Pull2(rows)
		defer stop()
		if row, err, ok := next(); ok {
			return row, err
		}
	}
	return nil, &CorruptError{Path: s.Path, Row: -1, Err: fmt.Errorf("no row %d of kind %s: the shard has %d rows of kind %s", n, kind, s.Rows, s.Kind)}
}
