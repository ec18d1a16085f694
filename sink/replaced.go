package sink

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/rollout-rl/rollout/sink/failpoint"
)

// Replaced shards and entries move to replaced/, into subfolders with the original folder names.
// After the merge is in the log, readers ignore the replaced files. So it does no harm if a power
// failure loses such a file, undoes a move, or restores a deleted file.

// moveReplaced moves the shards and entries of replaced commits to replaced/ and returns the moved
// files. After an error, moveReplaced can be called again. It skips files that were already
// moved.
func moveReplaced(fsys FS, dir string, sources []Commit, now time.Time) (gone []goneSet, err error) {
	fail := func(path string, err error) ([]goneSet, error) {
		return nil, &ShardError{Path: filepath.Join(dir, path), Op: "rename", Err: err}
	}
	for _, sub := range []string{dataDir, failuresDir, commitsDir} {
		if err := fsys.MkdirAll(filepath.Join(dir, replacedDir, sub)); err != nil {
			return fail(replacedDir, err)
		}
	}
	move := func(path string) error {
		name := filepath.FromSlash(path)
		err := fsys.Rename(filepath.Join(dir, name), filepath.Join(dir, replacedDir, name))
		if errors.Is(err, fs.ErrNotExist) {
			return nil // already moved
		}
		return err
	}
	var folders []string
	for i := range sources {
		for _, s := range sources[i].Shards {
			if err := move(s.Path); err != nil {
				return fail(s.Path, err)
			}
			failpoint.Hit(failpoint.MergeMoving)
			if sub := s.Kind.String(); !slices.Contains(folders, sub) {
				folders = append(folders, sub)
			}
		}
	}
	for _, sub := range folders {
		if err := errors.Join(fsys.SyncDir(filepath.Join(dir, replacedDir, sub)), fsys.SyncDir(filepath.Join(dir, sub))); err != nil {
			return fail(sub, err)
		}
	}
	failpoint.Hit(failpoint.MergeMoved)
	for i := range sources {
		path := entryPath(sources[i].Seq)
		if err := move(path); err != nil {
			return fail(path, err)
		}
		gone = append(gone, goneOf(&sources[i], now))
	}
	return gone, nil
}

// A goneSet lists the files of one replaced entry.
type goneSet struct {
	last  int64 // number of the last commit whose samples the entry contains
	paths []string
	at    time.Time // when the entry was replaced
}

func goneOf(c *Commit, at time.Time) goneSet {
	return goneSet{last: c.Last(), at: at, paths: append(c.paths(), entryPath(c.Seq))} // the entry is deleted last
}

// delete removes the files. If delete cannot remove a file, the next Create removes it.
func (g *goneSet) delete(fsys FS, dir string) {
	for _, path := range g.paths {
		_ = fsys.Remove(filepath.Join(dir, replacedDir, filepath.FromSlash(path)))
	}
}

// leftReplaced returns the replaced entries that are still in _commits/ of a folder, without their
// samples. There are such entries while a merge moves files, and after the process was killed during
// such a move.
func (l *Log) leftReplaced() (left []Commit, err error) {
	numbers, err := l.commitNumbers(0)
	if err != nil {
		return nil, err
	}
	counts := make(map[int64]bool, len(l.Commits))
	for i := range l.Commits {
		counts[l.Commits[i].Seq] = true
	}
	for _, seq := range numbers {
		if counts[seq] || !l.known.has(seq) {
			continue
		}
		c, _, err := l.readCommit(seq)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if c.Kind == "" {
			c.Groups, c.Samples = nil, nil
			left = append(left, c)
		}
	}
	return left, nil
}

// leftPaths returns the paths of the shards and entries that merges have replaced but not moved. In a
// bucket, these are all replaced shards.
func (l *Log) leftPaths() (paths []string, err error) {
	if !l.folder {
		return l.replaced, nil
	}
	left, err := l.leftReplaced()
	for i := range left {
		paths = append(paths, goneOf(&left[i], time.Time{}).paths...)
	}
	return paths, err
}

// finishMerges completes the moves that an earlier process started, and schedules replaced files
// for deletion.
func (d *Dataset) finishMerges(log *Log) error {
	left, err := log.leftReplaced()
	if err != nil {
		return err
	}
	if len(left) > 0 {
		if _, err := moveReplaced(d.fs, d.dir, left, d.cfg.Now()); err != nil {
			return err
		}
	}
	dir := filepath.Join(d.dir, replacedDir)
	names, err := d.fs.ReadDir(filepath.Join(dir, commitsDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &ShardError{Path: dir, Op: "open", Err: err}
	}
	replaced := locate(nil, d.fs, dir)
	named := map[string]bool{}
	for _, name := range names {
		seq, _ := commitSeq(name)
		c, _, err := replaced.readCommit(seq)
		if err != nil {
			continue // no reader uses this entry
		}
		g := goneOf(&c, d.cfg.Now())
		for _, path := range g.paths {
			named[path] = true
		}
		// If no entry replaces this entry, the merge was lost. Keep the files, because they are
		// the only copy.
		at := slices.IndexFunc(log.Commits, func(o Commit) bool { return seqSet(o.Replaces).has(c.Seq) })
		if at >= 0 {
			g.at = log.Commits[at].CreatedAt // the time of this merge or of a later merge
			d.merger.gone = append(d.merger.gone, g)
		}
	}
	for _, sub := range []string{dataDir, failuresDir, commitsDir} {
		names, err := d.fs.ReadDir(filepath.Join(dir, sub))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return &ShardError{Path: dir, Op: "open", Err: err}
		}
		for _, name := range names {
			if !named[sub+"/"+name] { // a power failure has restored this file, but not its entry
				_ = d.fs.Remove(filepath.Join(dir, sub, name))
			}
		}
	}
	d.merger.deleteGone()
	return nil
}
