package sink

import (
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/parquet-go/parquet-go"
)

// A Log is the commit log of a dataset as it was when it was read.
type Log struct {
	// Dir is the run's folder.
	Dir string
	// Commits are the entries that count, in logical order: by the number of the first commit
	// whose samples they hold. What a merge replaced is not among them.
	Commits []Commit

	fs    FS
	seq   sequence
	each  func(*Commit) // is called with every commit, and samples are dropped then; nil: they stay
	given int64         // the last commit that each was called with
	known seqSet        // entries that were read, or that such an entry replaces
}

// ReadLog reads the commit log of the run's folder dir. A folder without one has
// no commits. A log with a gap that no merge explains, with an entry that cannot be read, whose
// checksum is wrong or that is of another run than the first one is a *CorruptError; one with
// an entry of a newer version wraps ErrNewer.
func ReadLog(dir string) (*Log, error) { return readLog(OS(), dir, "", nil) }

// ReadLogEach is ReadLog for logs of millions of samples: it calls each with every commit, in
// logical order and once, those of merges as [Commit.Originals] returns them, and keeps the
// entries without their Groups and Samples. What each is given is its own. Done of such a Log is empty; Waiting reads the entries once more where there is a
// write-ahead log.
func ReadLogEach(dir string, each func(*Commit)) (*Log, error) { return readLog(OS(), dir, "", each) }

// readLog is ReadLog of the run with that id; empty: of any one run.
func readLog(fsys FS, dir, runID string, each func(*Commit)) (*Log, error) {
	log := &Log{Dir: dir, fs: fsys, seq: sequence{runID: runID}, each: each}
	return log, log.Follow()
}

// samples calls take with every sample of the commits that were read. Those that were
// dropped it reads again.
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

// Done returns the keys of the samples that are done: with rows, or with neither
// rows nor failures. Samples that failed are not among them.
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

// Rows returns the rows of a data shard, all columns, in order, after it checked
// the file's digest. Each row is the caller's. An error, which is a *CorruptError,
// ends the rows. It is made for looking at data; Verify reads faster.
func (l *Log) Rows(s Shard) iter.Seq2[*StoredRow, error] {
	return func(yield func(*StoredRow, error) bool) {
		err := readShard(l, s, KindData, yield)
		if err != nil {
			yield(nil, err)
		}
	}
}

// Failures is Rows for a shard of failures.
func (l *Log) Failures(s Shard) iter.Seq2[*StoredFailure, error] {
	return func(yield func(*StoredFailure, error) bool) {
		err := readShard(l, s, KindFailures, yield)
		if err != nil {
			yield(nil, err)
		}
	}
}

// corruptShard says that a shard cannot be read because of err.
func corruptShard(s Shard, err error) error {
	if errors.Is(err, ErrReplaced) {
		return fmt.Errorf("%s: %w", s.Path, err)
	}
	return &CorruptError{Path: s.Path, Row: -1, Err: err}
}

// readShard returns an error only if yield did not end the rows.
func readShard[T any](l *Log, s Shard, kind Kind, yield func(*T, error) bool) error {
	corrupt := func(err error) error { return corruptShard(s, err) }
	if s.Kind != kind {
		return corrupt(fmt.Errorf("a shard of %s, want %s", s.Kind, kind))
	}
	f, in, err := l.openChecked(s)
	if err != nil {
		return corrupt(err)
	}
	defer func() { _ = f.Close() }() // it was read only
	more := window(in, func(row *T) bool { return yield(row, nil) })
	if s = in.shard; s.Format == Arrow {
		rows, ok := any(more).(func(*StoredRow) bool)
		if !ok {
			return corrupt(fmt.Errorf("failures are never in format %s", s.Format))
		}
		err = readArrow(f, s.Bytes, s.Rows, rows)
	} else {
		err = readParquet(f, s.Bytes, s.Rows, more)
	}
	if err != nil {
		return corrupt(err)
	}
	return nil
}

// libraryPanic, deferred, turns a panic of the Parquet library on damaged bytes
// into an error. A panic of the caller's own, while it is yielded to, goes on.
func libraryPanic(yielding *bool, err *error) {
	if *yielding {
		return
	}
	if r := recover(); r != nil {
		*err = fmt.Errorf("parquet: %v", r)
	}
}

// readParquet calls yield with each row until it returns false.
func readParquet[T any](f File, size, rows int64, yield func(*T) bool) (err error) {
	pf, err := openParquet[T](f, size, rows)
	if err != nil {
		return err
	}
	var yielding bool
	defer libraryPanic(&yielding, &err)
	r := parquet.NewGenericReader[T](pf, schemaOf[T](versionOf[T](len(pf.Schema().Fields()))))
	defer func() { _ = r.Close() }() // it was read only
	var n int64
	for {
		// A few rows at a time: they can be large. Fresh memory for each, for the
		// rows are the caller's.
		batch := make([]T, 8)
		k, err := r.Read(batch)
		for i := range k {
			row := batch[i]
			n++
			yielding = true
			more := yield(&row)
			yielding = false
			if !more {
				return nil
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	if n != rows {
		return fmt.Errorf("%d rows, want %d", n, rows)
	}
	return nil
}
