package sink

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"sync"
	"time"
)

// In a bucket, no entry is ever deleted. If a list contains an entry, all earlier entries exist too,
// even if the list omits them. A 404 proves nothing.

const (
	// fetches is the number of entries that are requested at the same time.
	fetches = 8
	// An entry that must exist is requested fetchTries times, with growing pauses.
	fetchTries = 4
	fetchPause = 50 * time.Millisecond
)

// followBucket is like Follow, for a log in a bucket.
func (l *Log) followBucket() error {
	if len(l.known) == 0 {
		if err := l.load(); err != nil {
			return err
		}
	}
	for e, err := range l.fetch(l.Last()) {
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

// fetch lists the log in a bucket and yields the entries after the given number, by number. If an
// entry cannot be read, fetch yields its number and an error.
func (p *location) fetch(after int64) iter.Seq2[entryLine, error] {
	return func(yield func(entryLine, error) bool) {
		numbers, err := p.commitNumbers(after)
		if err != nil {
			yield(entryLine{}, err)
			return
		}
		if len(numbers) == 0 {
			return
		}
		for at, last := after, numbers[len(numbers)-1]; at < last; at += fetches {
			var (
				entries [fetches]entryLine
				errs    [fetches]error
				wait    sync.WaitGroup
			)
			n := min(last-at, fetches)
			for i := range n {
				wait.Go(func() { entries[i], errs[i] = p.fetchOne(at + 1 + i) })
			}
			wait.Wait()
			for i := range n {
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
