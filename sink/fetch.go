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
	var last int64
	var err error
	if len(l.known) == 0 {
		last, err = l.load()
	}
	if last == 0 && err == nil {
		last, err = l.highest(l.Last())
	}
	if err != nil {
		return err
	}
	for e, err := range l.fetch(l.Last(), last) {
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

// highest lists the entries of a bucket after the given number and returns the highest number, or
// the given one.
func (p *location) highest(after int64) (int64, error) {
	numbers, err := p.commitNumbers(after)
	for _, seq := range numbers {
		after = max(after, seq)
	}
	return after, err
}

// fetch yields the entries of a bucket after one number and up to another, by number. If an entry
// cannot be read, fetch yields its number and an error.
func (p *location) fetch(after, last int64) iter.Seq2[entryLine, error] {
	return func(yield func(entryLine, error) bool) {
		for at := after; at < last; at += fetches {
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
