package sink

import (
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/parquet-go/parquet-go"
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
	each  func(*Commit) // receives every commit, and the samples are dropped then; if nil, the samples stay
	given int64         // number of the last commit passed to each
	known seqSet        // entries that were read or replaced
}

// ReadLog reads the commit log of the run's folder dir. A folder without a log has no commits. The
// error is a *CorruptError if the log has a gap that no merge explains, or an entry that is unreadable,
// has a wrong checksum or belongs to another run. It wraps ErrNewer if a newer version wrote an entry.
func ReadLog(dir string) (*Log, error) { return readLog(OS(), dir, "", nil) }

// ReadLogEach is ReadLog for logs of millions of samples. It calls each once with every commit, in
// logical order, and keeps the entries without Groups and Samples. It splits merges as
// [Commit.Originals] does. each owns its commit. Done of such a Log is empty, and Waiting reads the
// entries again if there is a write-ahead log.
func ReadLogEach(dir string, each func(*Commit)) (*Log, error) { return readLog(OS(), dir, "", each) }

// readLog is ReadLog for the run runID. If runID is empty, it accepts any single run.
func readLog(fsys FS, dir, runID string, each func(*Commit)) (*Log, error) {
	log := &Log{Dir: dir, fs: fsys, seq: sequence{runID: runID}, each: each}
	return log, log.Follow()
}

// samples calls take with every sample of the commits that were read. It reads dropped samples again.
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
// The caller owns each row. An error is a *CorruptError and ends the rows. Rows is for looking at
// data; Verify reads faster.
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

// corruptShard returns err as the error of reading a shard.
func corruptShard(s Shard, err error) error {
	if errors.Is(err, ErrReplaced) {
		return fmt.Errorf("%s: %w", s.Path, err)
	}
	return &CorruptError{Path: s.Path, Row: -1, Err: err}
}

// readShard passes each row to yield. It returns an error only if yield did not end the rows.
func readShard[T any](l *Log, s Shard, kind Kind, yield func(*T, error) bool) error {
	corrupt := func(err error) error { return corruptShard(s, err) }
	if s.Kind != kind {
		return corrupt(fmt.Errorf("shard of kind %s, want %s", s.Kind, kind))
	}
	f, in, err := l.openChecked(s)
	if err != nil {
		return corrupt(err)
	}
	defer func() { _ = f.Close() }() // read-only
	more := window(in, func(row *T) bool { return yield(row, nil) })
	if s = in.shard; s.Format == Arrow {
		rows, ok := any(more).(func(*StoredRow) bool)
		if !ok {
			return corrupt(fmt.Errorf("format %s has no failures", s.Format))
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

// libraryPanic, if deferred, turns a panic of the Parquet library on damaged bytes into an error. A
// panic of the caller's code in yield continues.
func libraryPanic(yielding *bool, err *error) {
	if *yielding {
		return
	}
	if r := recover(); r != nil {
		*err = fmt.Errorf("parquet: %v", r)
	}
}

func readParquet[T any](f File, size, rows int64, yield func(*T) bool) (err error) {
	pf, err := openParquet[T](f, size, rows)
	if err != nil {
		return err
	}
	var yielding bool
	defer libraryPanic(&yielding, &err)
	r := parquet.NewGenericReader[T](pf, schemaOf[T]())
	defer func() { _ = r.Close() }() // read-only
	var n int64
	for {
		// Rows can be large, so read a few. The caller owns them, so use a new batch each time.
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
