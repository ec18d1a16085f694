package sink

import (
	"errors"
	"fmt"
	"iter"
	"slices"
)

// A Log is the commit log of a dataset at the time of reading.
type Log struct {
	// Dir is the run's folder.
	Dir string
	// Commits holds the entries that count, in logical order: by the number of the first commit
	// whose samples they hold. It excludes entries that a merge replaced.
	Commits []Commit

	fs    FS
	seq   sequence
	each  func(*Commit) // if not nil, receives every commit, and the samples are dropped afterwards
	given int64         // number of the last commit passed to each
	known seqSet        // entries that were read or replaced
}

// ReadLog reads the commit log of the run's folder dir. A folder without a log has no commits. The
// error is a *CorruptError if the log has a gap that no merge explains, or an entry that is unreadable,
// has a wrong checksum or belongs to another run. It wraps ErrNewer if a newer version wrote an entry.
func ReadLog(dir string) (*Log, error) { return readLog(OS(), dir, "", nil) }

// ReadLogEach is ReadLog for logs of millions of samples. It calls each once with every commit, in
// logical order, and drops Groups and Samples from the entries in Commits. It splits merges as
// [Commit.Originals] does. each owns its commit. Done of such a Log is empty, and Waiting rereads
// the entries if there is a write-ahead log.
func ReadLogEach(dir string, each func(*Commit)) (*Log, error) { return readLog(OS(), dir, "", each) }

// readLog is ReadLog for the run runID. If runID is empty, it accepts any single run.
func readLog(fsys FS, dir, runID string, each func(*Commit)) (*Log, error) {
	log := &Log{Dir: dir, fs: fsys, seq: sequence{runID: runID}, each: each}
	return log, log.Follow()
}

// samples calls take with every sample of the commits that were read. It rereads samples that were
// dropped.
func (l *Log) samples(take func(*CommittedSample)) error {
	all := func(c *Commit) {
		for k := range c.Samples {
			take(&c.Samples[k])
		}
	}
	if l.each != nil {
		_, err := readLog(l.fs, l.Dir, l.seq.runID, func(c *Commit) {
			if c.Seq <= l.given {
				all(c)
			}
		})
		return err
	}
	for i := range l.Commits {
		all(&l.Commits[i])
	}
	return nil
}

// Shards returns the shards of one kind in the order of the commits.
func (l *Log) Shards(kind Kind) iter.Seq[Shard] {
	return func(yield func(Shard) bool) {
		for i := range l.Commits {
			for _, s := range l.Commits[i].Shards {
				if s.Kind == kind && !yield(s) {
					return
				}
			}
		}
	}
}

// Done returns the keys of the samples that are done: with rows, or with neither rows nor failures.
func (l *Log) Done() map[string]struct{} {
	keys := make(map[string]struct{})
	for i := range l.Commits {
		for _, s := range l.Commits[i].Samples {
			if !s.Failed() {
				keys[s.Key] = struct{}{}
			}
		}
	}
	return keys
}

// Rows returns all columns of the rows of a data shard, in order, after checking the file's digest.
// The caller owns each row. An error is a *CorruptError and ends the rows.
func (l *Log) Rows(s Shard) iter.Seq2[*StoredRow, error] { return l.rowsFrom(s, 0) }

func (l *Log) rowsFrom(s Shard, n int64) iter.Seq2[*StoredRow, error] {
	return shardRows(l, s, KindData, n, nil, func(f File, in rowRange, yield func(*StoredRow) bool) error {
		return wholeRows().read(f, in, func(r *StoredRow) bool {
			own := *r
			own.InputIDs, own.LossMask = slices.Clone(r.InputIDs), slices.Clone(r.LossMask)
			own.Logprobs, own.Versions = slices.Clone(r.Logprobs), slices.Clone(r.Versions)
			return yield(&own)
		})
	})
}

// Failures is Rows for a shard of failures.
func (l *Log) Failures(s Shard) iter.Seq2[*StoredFailure, error] { return l.failuresFrom(s, 0) }

func (l *Log) failuresFrom(s Shard, n int64) iter.Seq2[*StoredFailure, error] {
	return shardRows(l, s, KindFailures, n, nil, func(f File, in rowRange, yield func(*StoredFailure) bool) error {
		return wholeFailures().read(f, in, func(r *StoredFailure) bool {
			own := *r
			return yield(&own)
		})
	})
}

// readRows calls yield with all columns of the rows of a range of a data shard, until yield returns false.
// yield must not keep the row.
func readRows(f File, in rowRange, yield func(*StoredRow) bool) error {
	if in.shard.Format == Arrow {
		return readArrow(f, in, nil, yield)
	}
	return wholeRows().read(f, in, yield)
}

// corruptShard returns err as the error of reading a shard.
func corruptShard(s Shard, err error) error {
	if errors.Is(err, ErrReplaced) {
		return fmt.Errorf("%s: %w", s.Path, err)
	}
	return &CorruptError{Path: s.Path, Row: -1, Err: err}
}

// shardRows yields the rows of a shard from row n on. It reads a Parquet shard with inParquet. For
// an Arrow stream, it excludes the columns of the fields in others.
func shardRows[T any](
	l *Log, s Shard, kind Kind, n int64, others []int, inParquet func(f File, in rowRange, yield func(*T) bool) error,
) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		if s.Kind != kind {
			yield(nil, corruptShard(s, fmt.Errorf("shard of kind %s, want %s", s.Kind, kind)))
			return
		}
		err := l.factsOf(s, func(f File, in rowRange) error {
			left := int64(-1) // read to the end of the file
			if in.rows < in.shard.Rows {
				left = in.rows - n
			}
			in.skip += n
			ended := false // by the caller
			more := func(row *T) bool {
				left--
				ended = !yield(row, nil)
				return !ended && left != 0
			}
			var err error
			if inArrow, ok := any(more).(func(*StoredRow) bool); in.shard.Format == Parquet {
				err = inParquet(f, in, more)
			} else if ok {
				err = readArrow(f, in, others, inArrow)
			} else {
				err = fmt.Errorf("format %s has no failures", in.shard.Format)
			}
			if err == nil && !ended && left > 0 {
				err = fmt.Errorf("the last %d rows are missing", left)
			}
			return err
		})
		if err != nil {
			yield(nil, err)
		}
	}
}

// factsOf opens the file with the rows of a shard, checks its digest, and calls read.
func (l *Log) factsOf(s Shard, read func(File, rowRange) error) error {
	f, in, err := l.openChecked(s)
	if err != nil {
		return corruptShard(s, err)
	}
	defer func() { _ = f.Close() }() // read-only
	if err := read(f, in); err != nil {
		return corruptShard(s, err)
	}
	return nil
}

// libraryPanic, if deferred, turns a library's panic on damaged bytes into an error. It does not
// recover a panic of the caller's code in yield.
func libraryPanic(library string, yielding *bool, err *error) {
	if *yielding {
		return
	}
	if r := recover(); r != nil {
		*err = fmt.Errorf("%s: %v", library, r)
	}
}
