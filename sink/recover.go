package sink

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/rollout-rl/rollout/sink/failpoint"
	"github.com/rollout-rl/rollout/sink/frame"
)

// replacedDir is the folder for files that merges have replaced. Its subfolders have the original
// folder names.
const replacedDir = "replaced"

// orphansDir is the folder for files that recovery and repair set aside. Readers ignore this
// folder.
const orphansDir = "orphans"

// The names of shards begin with shardPrefix. In a merged shard's name, mergeMark follows the
// epoch, or replaces it if it is 0.
const shardPrefix, mergeMark = "part-", "m"

// A Recovery reports what Create recovered from an interrupted process. The zero Recovery means
// that there was nothing to recover.
type Recovery struct {
	// Temporaries counts the temporary files that Create removed.
	Temporaries int
	// Orphans lists the new paths of the shards that Create set aside because no commit names
	// them. The paths are relative to the run's folder. All samples in these shards are also in
	// the write-ahead log or in a commit.
	Orphans []string
	// Deleted counts the shards of earlier epochs that Create deleted from Config.Store because no
	// commit names them.
	Deleted int64
	// Segments counts segments of the write-ahead log. Replayed counts the samples that Create
	// committed, and Commits counts these commits. Known counts samples that were already
	// committed. Waiting counts samples that stay in the write-ahead log until their groups are
	// whole (Config.CommitGroups).
	Segments                 int
	Replayed, Known, Waiting int64
	Commits                  int64
	// TornBytes counts the bytes that Create dropped from the write-ahead log because they were
	// never durable.
	TornBytes int64
}

// Recovered reports what Create recovered.
func (d *Dataset) Recovered() Recovery { return d.recovered }

// recover brings the folder into the state of a closed dataset. It removes all leftovers. It
// commits all samples in the write-ahead log, except samples that wait for the rest of their
// group. If recovery is interrupted, the next Create restarts it.
func (d *Dataset) recover(log *Log) error {
	failpoint.Hit(failpoint.RecoverStarted)
	// If the previous process died between the link and the sync, the name of the last entry
	// might not yet be durable. It must be durable before the segments with the entry's samples
	// are deleted.
	if d.folder {
		if err := d.fs.SyncDir(filepath.Join(d.dir, commitsDir)); err != nil {
			return &ShardError{Path: filepath.Join(d.dir, commitsDir), Op: "sync", Err: err}
		}
		if err := d.finishMerges(log); err != nil {
			return err
		}
	}
	if err := d.clearLeftovers(log); err != nil {
		return err
	}
	failpoint.Hit(failpoint.RecoverOrphans)
	if err := d.replay(log); err != nil {
		return err
	}
	// The numbers of new segments continue after the highest existing number. Without this sync,
	// a power failure could restore a deleted segment with a higher number than a new segment.
	// The torn end of the new segment would then look like damage.
	if err := d.fs.SyncDir(filepath.Join(d.dir, walDir)); err != nil {
		return &ShardError{Path: filepath.Join(d.dir, walDir), Op: "sync", Err: err}
	}
	failpoint.Hit(failpoint.RecoverDone)
	return nil
}

func (d *Dataset) clearLeftovers(log *Log) error {
	for _, sub := range append([]string{""}, d.localDirs()...) {
		dir := filepath.Join(d.dir, sub)
		names, err := d.fs.ReadDir(dir)
		if err != nil {
			return &ShardError{Path: dir, Op: "open", Err: err}
		}
		for _, name := range names {
			path := filepath.Join(dir, name)
			if sub == "" { // most files in the run's folder do not belong to this package
				for _, of := range []string{cardName, ackName, tagName} {
					if strings.HasPrefix(name, tempPrefix+of+"-") {
						_ = d.fs.Remove(path) // if this fails, the leftover does no harm
					}
				}
			} else if strings.HasPrefix(name, tempPrefix) {
				if err := d.fs.Remove(path); err != nil {
					return &ShardError{Path: path, Op: "remove", Err: err}
				}
				d.recovered.Temporaries++
			}
		}
	}
	if !d.folder {
		return d.sweep(log)
	}
	orphans, err := log.unnamed()
	if err != nil {
		return &ShardError{Path: d.dir, Op: "open", Err: err}
	}
	for _, path := range orphans {
		aside := asideOf(path)
		if err := setAside(d.fs, d.dir, path, aside, d.fs.Rename); err != nil {
			return err
		}
		d.recovered.Orphans = append(d.recovered.Orphans, aside)
	}
	return nil
}

// asideOf returns the path in orphans/ to which the shard at path is moved.
func asideOf(path string) string { return orphansDir + "/" + strings.Replace(path, "/", "-", 1) }

// setAside moves or links a file in the run's folder dir to the path aside in orphans/, and makes
// the new name durable. The argument move must be a function that renames or links a file.
func setAside(fsys FS, dir, path, aside string, move func(from, to string) error) error {
	to := filepath.Join(dir, filepath.FromSlash(aside))
	err := fsys.MkdirAll(filepath.Dir(to))
	if err == nil {
		err = fsys.SyncDir(dir)
	}
	if err == nil {
		err = move(filepath.Join(dir, filepath.FromSlash(path)), to)
	}
	if err == nil {
		err = fsys.SyncDir(filepath.Dir(to))
	}
	if err != nil {
		return &ShardError{Path: to, Op: "set aside", Err: err}
	}
	return nil
}

// replay commits the samples in the write-ahead log that are not yet in a commit. Samples whose
// group is incomplete are copied to one segment, which remains. The other segments are deleted
// last.
func (d *Dataset) replay(log *Log) error {
	names, err := walSegments(d.fs, d.dir)
	if err != nil {
		return &ShardError{Path: filepath.Join(d.dir, walDir), Op: "open", Err: err}
	}
	if len(names) == 0 {
		return nil
	}
	events := d.cfg.Events
	d.cfg.Events = Events{} // the caller is not prepared for events before Create returns
	defer func() { d.cfg.Events = events }()

	known, err := log.attempts()
	if err != nil {
		return err
	}
	w := newWriter(d)
	w.recovering = true
	for i, name := range names {
		if err := d.replaySegment(w, known, name, i == len(names)-1); err != nil {
			w.giveUp(err)
			return err
		}
	}
	if err := w.finish(); err != nil {
		w.giveUp(err)
		return err
	}
	d.recovered.Commits = d.stats.Commits
	d.recovered.Waiting = int64(w.held.n)
	d.recovered.Replayed -= d.recovered.Waiting
	d.stats = Stats{Pending: d.recovered.Waiting}
	d.recovered.Segments = len(names)
	failpoint.Hit(failpoint.RecoverReplayed)
	if w.held.n > 0 {
		last := names[len(names)-1]
		if err := d.keepWaiting(w, last); err != nil {
			w.giveUp(err)
			return &ShardError{Path: filepath.Join(d.dir, walDir, last), Op: "write", Err: err}
		}
		names = names[:len(names)-1]
	}
	for _, name := range names {
		path := filepath.Join(d.dir, walDir, name)
		if err := d.fs.Remove(path); err != nil {
			return &ShardError{Path: path, Op: "remove", Err: err}
		}
		failpoint.Hit(failpoint.WALDeleted)
	}
	return nil
}

// keepWaiting writes the samples that w holds to a new segment without a torn end. This segment
// replaces the last segment, which has the given name. After that, no other segment is needed.
func (d *Dataset) keepWaiting(w *writer, name string) error {
	kept := &segment{path: filepath.Join(d.dir, walDir, name), pending: w.held.n, closed: true}
	size, err := replaceSegment(d.fs, d.dir, name, func() error { return nil }, func(frames *frame.Writer) error {
		defer w.closeAgain()
		for _, g := range w.held.list {
			for i := range g.list {
				a := &g.list[i]
				payload, err := w.readFrame(a)
				if err != nil {
					return err
				}
				a.segment, a.at = kept, frames.Size()
				if err := frames.Write(payload); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	failpoint.Hit(failpoint.RecoverKept)
	kept.bytes = size
	number, _ := segmentNumber(name)
	d.waiting, d.wal.number, d.wal.bytes = w.held, number+1, size
	return nil
}

// replaceSegment durably replaces a segment with a new segment. The function write must write the
// frames of the new segment. The function before is called when the new segment is complete but
// still has a temporary name.
func replaceSegment(
	fsys FS, dir, name string, before func() error, write func(*frame.Writer) error,
) (size int64, err error) {
	dir = filepath.Join(dir, walDir)
	temp := filepath.Join(dir, tempPrefix+rand.Text()+walExt)
	f, err := fsys.Create(temp)
	if err != nil {
		return 0, err
	}
	number, _ := segmentNumber(name)
	w, err := frame.NewWriter(f, walHeader(number))
	if err == nil {
		err = write(w)
	}
	if err == nil {
		err = w.Synced() // the frames are durable before the file gets its name
	}
	if err == nil {
		err = f.Sync()
	}
	closeInto(f, &err)
	if err == nil {
		err = before()
	}
	if err == nil {
		err = fsys.Rename(temp, filepath.Join(dir, name))
	}
	if err == nil {
		err = fsys.SyncDir(dir)
	}
	if err != nil {
		_ = fsys.Remove(temp) // if this fails, recovery removes the file
		return 0, err
	}
	return w.Size(), nil
}

func (d *Dataset) replaySegment(w *writer, known attempts, name string, last bool) error {
	segment := &segment{path: filepath.Join(d.dir, walDir, name)} // closed is never set, because replay itself removes the segment
	err := readSegment(d.fs, d.dir, name, last, func(part segmentPart) error {
		switch {
		case part.torn != nil:
			d.recovered.TornBytes += part.torn.Bytes
		case part.corrupt != nil:
			return corruptSegment(name, part.corrupt)
		case known.has(part.sample):
			d.recovered.Known++
		default:
			s := part.sample
			known.add(s.Key, s.Attempt, failed(s))
			if !failed(s) {
				d.keys.add(s.Key)
			}
			d.recovered.Replayed++
			d.pending(1)
			return w.take(accepted{sample: s, done: func(error) {}, segment: segment, at: part.at, size: frame.Overhead + int64(len(part.payload))})
		}
		return nil
	})
	var shard *ShardError
	switch {
	case err == nil, errors.Is(err, ErrNewer), errors.Is(err, ErrCorrupt), errors.As(err, &shard):
		return err
	case errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("%w: is another process using the folder?", err)
	}
	return &ShardError{Path: filepath.Join(d.dir, walDir, name), Op: "open", Err: err}
}
