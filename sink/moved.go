package sink

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/rollout-rl/rollout/sink/store"
)

// A merge can replace shards after a reader has read the log. Replaced shards stay in replaced/ for
// some time. After their deletion, the reader reads the rows from the merge that now contains them.

// A rowRange selects all rows of a shard, or a range of rows in the shard of a merge.
type rowRange struct {
	shard Shard
	skip  int64 // number of rows before the range
	rows  int64 // number of rows in the range; only shardRows uses this field, and other functions read until yield returns false
}

// find opens the file that currently contains the rows of s. The libraries must not read the file
// before its digest has been checked, because a damaged file can make them panic or allocate memory
// without limit.
func (l *Log) find(s Shard) (store.Object, rowRange, error) {
	in := rowRange{shard: s, rows: s.Rows}
	o, err := l.openShard(s)
	for try := 1; errors.Is(err, ErrReplaced) && try < maxListings; try++ {
		last := in.shard.Path
		if in, err = l.findMoved(s); err == nil {
			o, err = l.open(in.shard.Path)
		}
		if errors.Is(err, fs.ErrNotExist) && (l.folder || in.shard.Path != last) {
			err = ErrReplaced // try again
		}
	}
	return o, in, err
}

// openShard opens a shard, even if a merge has replaced it since the log was read. If the replaced
// shard has been deleted, the error wraps ErrReplaced.
func (l *Log) openShard(s Shard) (store.Object, error) {
	o, err := l.open(s.Path)
	if errors.Is(err, fs.ErrNotExist) {
		if replaced, rerr := l.replacedSince(s); replaced || rerr != nil {
			return nil, cmp.Or(rerr, ErrReplaced)
		}
	}
	return o, err
}

// entryOf returns the entry that names a shard, or nil.
func (l *Log) entryOf(s Shard) *Commit {
	at := slices.IndexFunc(l.Commits, func(c Commit) bool {
		return slices.ContainsFunc(c.Shards, func(o Shard) bool { return o.Path == s.Path })
	})
	if at < 0 {
		return nil
	}
	return &l.Commits[at]
}

// replacedSince reports whether a merge has replaced the entry of a missing shard. If so, the entry
// is also missing from _commits/ of a folder. An entry is moved to replaced/ after its shards have
// been moved there and before they are deleted. In a bucket, the entry stays, and replacedSince
// reads the log again.
func (l *Log) replacedSince(s Shard) (bool, error) {
	c := l.entryOf(s)
	if c == nil {
		return false, nil
	}
	if !l.folder {
		now, err := readLog(l.location, l.seq.runID, func(*Commit) {})
		return err == nil && now.entryOf(s) == nil, err
	}
	o, err := l.objects.Open(entryPath(c.Seq))
	if err == nil {
		_ = o.Close() // nothing was read
	}
	return errors.Is(err, fs.ErrNotExist), nil
}

// findMoved rereads the log and returns the range that currently contains the rows of s.
func (l *Log) findMoved(s Shard) (in rowRange, err error) {
	first := l.entryOf(s).First()
	rows := map[int64]int64{}
	now, err := readLog(l.location, l.seq.runID, func(c *Commit) {
		for _, of := range c.Samples {
			if s.Kind == KindFailures {
				rows[c.Seq] += int64(of.Failures)
			} else {
				rows[c.Seq] += int64(of.Rows)
			}
		}
	})
	if err != nil {
		return in, err
	}
	for i := range now.Commits {
		c := &now.Commits[i]
		if c.First() > first || c.Last() < first {
			continue
		}
		in.rows = s.Rows
		for _, m := range c.Merged {
			if m.Seq < first {
				in.skip += rows[m.Seq]
			}
		}
		for _, o := range c.Shards {
			if o.Kind == s.Kind {
				in.shard = o
				return in, nil
			}
		}
	}
	return in, fmt.Errorf("no shard of the merge contains these rows: %w", ErrReplaced)
}
