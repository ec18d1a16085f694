package sink

import (
	"errors"
	"io/fs"
	"path/filepath"
)

// HasRows reports whether the run's folder dir holds a row: in a shard, or in the
// write-ahead log. It stops at the first one, and checks nothing behind it. Damage
// before it is an error, as in ReadLog and Log.Waiting.
func HasRows(dir string) (bool, error) {
	fsys := OS()
	names, err := fsys.ReadDir(filepath.Join(dir, commitsDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	log := &Log{Dir: dir, fs: fsys}
	for _, name := range names {
		if _, ok := commitSeq(name); !ok {
			continue
		}
		c, err := readCommit(fsys, dir, name)
		if err != nil {
			return false, err
		}
		for _, s := range c.Shards {
			if s.Kind == KindData && s.Rows > 0 {
				return true, nil
			}
		}
		log.Commits = append(log.Commits, c)
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
