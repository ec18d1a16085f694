package sink

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"sync"
	"time"
)

// In a bucket, no entry is ever deleted. If a list contains an entry, all earlier entries exist too,
// even if the list omits them. A 404 proves nothing. The exception is a log that was copied from a
// folder, because the merges in a folder remove entries.

const (
	// fetches is the number of entries that are requested at the same time.
	fetches = 8
	// An entry that must exist is requested fetchTries times, with growing pauses.
	fetchTries = 4
	fetchPause = 50 * time.Millisecond
	// maxOmitted is the number of entries that a list can omit before its last entry.
	maxOmitted = 1000
)

// followBucket is like Follow, for a log in a bucket.
func (l *Log) followBucket() error {
	var listed []int64
	var err error
	if len(l.known) == 0 {
		listed, err = l.load()
	} else {
		listed, err = l.list()
	}
	if err != nil {
		return err
	}
	order, err := l.newEntries(listed)
	if err != nil {
		return err
	}
	for e, err := range l.fetch(order) {
		if err == nil {
			err = l.add(&e.Commit)
		}
		if err != nil {
			return err
		}
		l.checkpoints.keep(&e.Commit, e.line)
	}
	return nil
}

// newEntries returns the numbers of the entries that are not in l.known, in an order in which they
// can be added. listed contains these numbers as the bucket has listed them.
func (l *Log) newEntries(listed []int64) (order []int64, err error) {
	listed = slices.DeleteFunc(listed, l.known.has)
	if len(listed) == 0 {
		return nil, nil
	}
	first, last := l.Last()+1, listed[len(listed)-1]
	omitted := last - l.Last() - int64(len(listed))
	if omitted > 0 {
		for _, seq := range listed {
			if seq > first {
				break
			}
			first++
		}
		if _, _, err := l.readCommit(first); errors.Is(err, fs.ErrNotExist) {
			if left, gaps, err := l.order(listed); err == nil && len(gaps) == 0 { // the log was copied
				replaced := slices.DeleteFunc(listed, func(seq int64) bool { return slices.Contains(left, seq) })
				return append(left, replaced...), nil
			}
		}
	}
	if omitted > maxOmitted {
		return nil, &CorruptError{Path: entryPath(first), Row: -1, Err: fmt.Errorf("the file is missing, like %d others before entry %d", omitted-1, last)}
	}
	for seq := l.Last() + 1; seq <= last; seq++ {
		order = append(order, seq)
	}
	return order, nil
}

// fetch yields entries of a bucket. If an entry cannot be read, fetch yields its number and an error.
func (p *location) fetch(order []int64) iter.Seq2[entryLine, error] {
	return func(yield func(entryLine, error) bool) {
		for part := range slices.Chunk(order, fetches) {
			var (
				entries [fetches]entryLine
				errs    [fetches]error
				wait    sync.WaitGroup
			)
			for i, seq := range part {
				wait.Go(func() { entries[i], errs[i] = p.fetchOne(seq) })
			}
			wait.Wait()
			for i := range part {
				if !yield(entries[i], errs[i]) {
					return
				}
			}
		}
	}
}

// fetchOne reads an entry that must exist.
func (p *location) fetchOne(seq int64) (e entryLine, err error) {
	for try := 1; ; try++ {
		e.Commit, e.line, err = p.readCommit(seq)
		e.Seq = seq
		if !errors.Is(err, fs.ErrNotExist) {
			return e, err
		}
		if try == fetchTries {
			err = fmt.Errorf("a later entry exists, but the store does not return this one: %w", fs.ErrNotExist)
			return e, &ShardError{Path: p.objects.String() + "/" + entryPath(seq), Op: "read", Err: err}
		}
		time.Sleep(time.Duration(try) * fetchPause)
	}
}
