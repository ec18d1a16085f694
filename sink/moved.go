package sink

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
)

// A reader of a log that was read a while ago asks for shards that merges have replaced since.
// They lie in replaced/ for some time; then their rows are read from the merge that has them now.

// A rowRange is which rows of a shard are wanted: all of them, unless a merge has more.
type rowRange struct {
	shard Shard
	skip  int64 // rows before the first one
	rows  int64
}

// openChecked opens what has the rows of a shard now, with the size and digest of its commit. They
// come first: the libraries are not made for damaged files, and may ask for any amount of memory.
func (l *Log) openChecked(s Shard) (File, rowRange, error) {
	in := rowRange{shard: s, rows: s.Rows}
	f, err := l.open(s)
	for try := 1; errors.Is(err, ErrReplaced) && try < maxListings; try++ {
		if in, err = l.findMoved(s); err == nil {
			f, err = openCommitted(l.fs, l.Dir, in.shard.Path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = ErrReplaced // once more
		}
	}
	if err != nil {
		return nil, in, err
	}
	if err := checkBytes(f, in.shard.Bytes, in.shard.SHA256); err != nil {
		_ = f.Close() // it was read only
		return nil, in, err
	}
	return f, in, nil
}

// window returns a function that calls yield with the rows of the range, given all of the shard.
func window[T any](in rowRange, yield func(*T) bool) func(*T) bool {
	if in.rows == in.shard.Rows {
		return yield
	}
	n := int64(0)
	return func(row *T) bool {
		n++
		return n <= in.skip || yield(row) && n < in.skip+in.rows
	}
}

// open opens a shard, also one that a merge replaced since the log was read. The error wraps
// ErrReplaced where that shard is gone.
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

// entryOf returns the entry that names a shard, nil if none does.
func (l *Log) entryOf(s Shard) *Commit {
	at := slices.IndexFunc(l.Commits, func(c Commit) bool {
		return slices.ContainsFunc(c.Shards, func(o Shard) bool { return o.Path == s.Path })
	})
	if at < 0 {
		return nil
	}
	return &l.Commits[at]
}

// replacedSince reports whether the entry of a shard that is gone was replaced: it leaves its
// folder after the shard has left its own, and before the shard is deleted.
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

// findMoved returns where the rows of a shard are by the log as it is now.
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
	return in, fmt.Errorf("%w, which does not name its rows", ErrReplaced)
}
