package sink

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
)

// A merge can replace shards after a reader has read the log. Replaced shards stay in replaced/ for
// some time. After their deletion, the reader reads the rows from the merge that now contains them.

// A rowRange selects all rows of a shard, or a range of rows in the shard of a merge.
type rowRange struct {
	shard Shard
	skip  int64 // number of rows before the range
	rows  int64 // number of rows in the range; only shardRows uses this field, and other functions read until yield returns false
}

// openChecked opens the file that currently contains the rows of s, and checks the file's size and
// digest. The libraries must not read a file before this check, because a damaged file can make
// them panic or allocate memory without limit.
func (l *Log) openChecked(s Shard) (File, rowRange, error) {
	in := rowRange{shard: s, rows: s.Rows}
	f, err := l.open(s)
	for try := 1; errors.Is(err, ErrReplaced) && try < maxListings; try++ {
		if in, err = l.findMoved(s); err == nil {
			f, err = openCommitted(l.fs, l.Dir, in.shard.Path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = ErrReplaced // try again
		}
	}
	if err != nil {
		return nil, in, err
	}
	if err := checkBytes(f, in.shard.Bytes, in.shard.SHA256); err != nil {
		_ = f.Close() // read-only
		return nil, in, err
	}
	return f, in, nil
}

// open opens a shard, even if a merge has replaced it since the log was read. If the replaced shard
// has been deleted, the error wraps ErrReplaced.
func (l *Log) open(s Shard) (File, error) {
	f, err := openCommitted(l.fs, l.Dir, s.Path)
	if errors.Is(err, fs.ErrNotExist) && l.replacedSince(s) {
		return nil, ErrReplaced
	}
	return f, err
}

func openCommitted(fsys FS, dir, path string) (File, error) {
	name := filepath.FromSlash(path)
	f, err := fsys.Open(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		if moved, merr := fsys.Open(filepath.Join(dir, replacedDir, name)); !errors.Is(merr, fs.ErrNotExist) {
			return moved, merr
		}
	}
	return f, err
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
// is also missing from _commits/. An entry is moved to replaced/ after its shards have been moved
// there and before they are deleted.
func (l *Log) replacedSince(s Shard) bool {
	c := l.entryOf(s)
	if c == nil {
		return false
	}
	f, err := l.fs.Open(filepath.Join(l.Dir, commitsDir, commitName(c.Seq)))
	if err == nil {
		_ = f.Close() // nothing was read
	}
	return errors.Is(err, fs.ErrNotExist)
}

// findMoved rereads the log and returns the range that currently contains the rows of s.
func (l *Log) findMoved(s Shard) (in rowRange, err error) {
	first := l.entryOf(s).First()
	rows := map[int64]int64{}
	now, err := readLog(l.fs, l.Dir, l.seq.runID, func(c *Commit) {
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
