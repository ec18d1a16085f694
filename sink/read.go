package sink

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"slices"

	"github.com/rollout-rl/rollout/sink/store"
)

// A Log is the commit log of a dataset at the time it was read.
type Log struct {
	// Commits contains the valid entries in logical order: sorted by the number of the first
	// commit whose samples the entry contains. Entries that a merge has replaced are excluded.
	Commits []Commit

	location
	seq   sequence
	each  func(*Commit) // if not nil, is called with every commit, and the samples are dropped afterwards
	given int64         // number of the last commit passed to each
	known seqSet        // numbers of the entries that were read or replaced

	scores *Scores // if not nil, replaces the scores in the rows; see UseScores

	// These fields are only used in a bucket.
	shards      []store.Info  // the shards that CheckSizes has listed
	replaced    []string      // if not nil, the paths of the shards of replaced entries
	checkpoints *checkpointer // if not nil, the entries of the next checkpoints
}

// ReadLog reads the commit log in the run's folder dir. If the folder has no log, the Log has no
// commits. The error is a *CorruptError if an entry is missing and no merge replaces it, or if an
// entry is unreadable, has a wrong checksum or belongs to another run. The error wraps ErrNewer if
// a newer version of the program wrote an entry.
func ReadLog(dir string) (*Log, error) { return ReadLogIn(nil, dir, nil) }

// ReadLogIn is like ReadLog, but for a log in a store, such as a bucket. The folder spool contains
// the write-ahead log of the dataset's process. It is empty for a reader on another machine. If
// objects is nil, the log is in the folder spool too.
//
// If each is not nil, ReadLogIn is for logs with millions of samples. It passes every commit once
// to each, in logical order. Merges are split into their commits, as [Commit.Originals] does. The
// function owns its argument. The entries in Commits lack Groups and Samples. So the method Done of
// such a Log returns no keys. The method Waiting rereads the entries if there is a write-ahead log, and
// the method Stored rereads each entry.
func ReadLogIn(objects store.Store, spool string, each func(*Commit)) (*Log, error) {
	return readLog(locate(objects, nil, spool), "", each)
}

// readLog reads the log, in which all entries must belong to the run runID. If runID is empty,
// they must all belong to the same run. If each is not nil, readLog works like ReadLogIn.
func readLog(p location, runID string, each func(*Commit)) (*Log, error) {
	log := &Log{location: p, seq: sequence{runID: runID}, each: each}
	log.intact = new(intact)
	return log, log.Follow()
}

// samples passes every sample in the commits that were read to the function take. If the samples
// were dropped, it rereads the log.
func (l *Log) samples(take func(*CommittedSample)) error {
	all := func(c *Commit) {
		for k := range c.Samples {
			take(&c.Samples[k])
		}
	}
	if l.each != nil {
		_, err := readLog(l.location, l.seq.runID, func(c *Commit) {
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

// Shards yields the shards of one kind in the order of l.Commits.
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

// Done returns the keys of the samples that do not have to run again. A sample is done if it has
// rows, or if it has neither rows nor failures.
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

// Rows checks the digest of a data shard and yields its rows in order, with all columns. The caller
// owns each row. An error ends the iteration. The error is a *CorruptError or wraps ErrReplaced.
func (l *Log) Rows(s Shard) iter.Seq2[*StoredRow, error] { return l.rowsFrom(s, 0) }

func (l *Log) rowsFrom(s Shard, n int64) iter.Seq2[*StoredRow, error] {
	return shardRows(l, s, KindData, n, nil, func(f io.ReaderAt, in rowRange, yield func(*StoredRow) bool) error {
		return wholeRows().read(f, in, func(r *StoredRow) bool {
			own := *r
			own.InputIDs, own.LossMask = slices.Clone(r.InputIDs), slices.Clone(r.LossMask)
			own.Logprobs, own.Versions = slices.Clone(r.Logprobs), slices.Clone(r.Versions)
			return yield(&own)
		})
	})
}

// Failures is like Rows, but for a failure shard.
func (l *Log) Failures(s Shard) iter.Seq2[*StoredFailure, error] { return l.failuresFrom(s, 0) }

func (l *Log) failuresFrom(s Shard, n int64) iter.Seq2[*StoredFailure, error] {
	return shardRows(l, s, KindFailures, n, nil, func(f io.ReaderAt, in rowRange, yield func(*StoredFailure) bool) error {
		return wholeFailures().read(f, in, func(r *StoredFailure) bool {
			own := *r
			return yield(&own)
		})
	})
}

// readRows passes each row in a range of a data shard to yield, until yield returns false. The
// rows have all columns. The yield function must not keep the row.
func readRows(f io.ReaderAt, in rowRange, yield func(*StoredRow) bool) error {
	if in.shard.Format == Arrow {
		return readArrow(f, in, nil, yield)
	}
	return wholeRows().read(f, in, yield)
}

// shardRows yields the rows of a shard, starting with row n. It calls inParquet to read a Parquet
// shard. For an Arrow shard, it skips the columns of the fields whose indexes are in others.
func shardRows[T any](
	l *Log, s Shard, kind Kind, n int64, others []int, inParquet func(f io.ReaderAt, in rowRange, yield func(*T) bool) error,
) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		if s.Kind != kind {
			yield(nil, l.readError(s.Path, fmt.Errorf("shard of kind %s, want %s", s.Kind, kind)))
			return
		}
		var scoreErr error // it concerns another file
		err := l.factsOf(s, func(f io.ReaderAt, in rowRange) error {
			left := int64(-1) // -1: read to the end of the file
			if in.rows < in.shard.Rows {
				left = in.rows - n
			}
			in.skip += n
			ended := false // the caller ended the iteration
			more := func(row *T) bool {
				if r, ok := any(row).(*StoredRow); ok {
					if scoreErr = l.scores.apply(r, others == nil); scoreErr != nil {
						return false
					}
				}
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
				err = fmt.Errorf("format %s cannot store failures", in.shard.Format)
			}
			if err == nil && !ended && left > 0 && scoreErr == nil {
				err = fmt.Errorf("the last %d rows are missing", left)
			}
			return err
		})
		if scoreErr != nil {
			err = scoreErr
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

// factsOf opens the file that contains the rows of a shard, checks the file's digest, and calls
// read. In a bucket, the file can be deleted after a merge and after it was opened, but before read
// gets a row. factsOf then searches for the rows again.
func (l *Log) factsOf(s Shard, read func(io.ReaderAt, rowRange) error) (err error) {
	for try := 1; ; try++ {
		o, in, ferr := l.find(s)
		if ferr != nil {
			return l.readError(s.Path, ferr)
		}
		err = l.checked(o, in.shard, func(f io.ReaderAt) error { return read(f, in) })
		_ = o.Close() // read-only
		if err == nil {
			return nil
		}
		if l.folder || !errors.Is(err, fs.ErrNotExist) || try == maxListings {
			return l.readError(s.Path, err)
		}
	}
}

// libraryPanic must be deferred. It turns a library's panic on damaged bytes into an error. It
// does not recover from a panic in the caller's yield function.
func libraryPanic(library string, yielding *bool, err *error) {
	if *yielding {
		return
	}
	if r := recover(); r != nil {
		*err = fmt.Errorf("%s: %v", library, r)
	}
}
