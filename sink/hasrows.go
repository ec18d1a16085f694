package sink

import (
	"errors"
	"io/fs"
	"slices"
)

// HasRows reports whether the run's folder dir contains a row, either in a committed shard or in
// the write-ahead log. It stops at the first row. If HasRows finds damage before the first row, it
// returns the same error as ReadLog or Log.Waiting.
func HasRows(dir string) (bool, error) {
	log := &Log{location: locate(nil, nil, dir)}
	fresh, err := log.list()
	if err != nil {
		return false, err
	}
	for _, seq := range fresh {
		c, _, err := log.readCommit(seq)
		if errors.Is(err, fs.ErrNotExist) {
			break // a merge has just replaced the entry
		}
		if err != nil {
			return false, err
		}
		if c.hasRows() {
			return true, nil
		}
	}
	if err := log.Follow(); err != nil {
		return false, err
	}
	for i := range log.Commits {
		if log.Commits[i].hasRows() {
			return true, nil
		}
	}
	for w, err := range log.Waiting() {
		if err != nil {
			return false, err
		}
		if len(w.Rows) > 0 {
			return true, nil
		}
	}
	return false, nil
}

func (c *Commit) hasRows() bool {
	return slices.ContainsFunc(c.Shards, func(s Shard) bool { return s.Kind == KindData && s.Rows > 0 })
}
