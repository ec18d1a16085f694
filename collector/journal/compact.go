package journal

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/sink/durable"
	"github.com/rollout-rl/rollout/sink/frame"
)

// A compaction of an intact journal must reduce its size at least by the factor worth. The size
// after the compaction is estimated with entrySize bytes per entry.
const (
	entrySize = 60
	worth     = 4
)

func removeTemporary(dir string) error {
	files, err := os.ReadDir(dir)
	for _, f := range files {
		if strings.HasSuffix(f.Name(), suffix+temporary) {
			err = errors.Join(err, os.Remove(filepath.Join(dir, f.Name())))
		}
	}
	return err
}

// write writes the state to a new segment and syncs the segment.
func (s *state) write(path string, process int, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	buf := bufio.NewWriterSize(f, 1<<20)
	w, err := frame.NewWriter(buf, header(process))
	if err == nil {
		now := time.Now()
		err = s.entries(func(e Entry, k id) error {
			e.Time = now
			return w.End(e.append(w.Begin(), k))
		})
	}
	if err == nil {
		err = w.Synced() // f.Sync runs before the rename
	}
	return errors.Join(err, buf.Flush(), f.Sync(), f.Close())
}

// compact merges the old segments if they are damaged or if the result is much smaller. The steps
// are:
//
//	write  N.journal.tmp   sums of every sample, and the open attempts; sync
//	rename to N.journal    replaces the last old segment; sync the folder
//	remove 1 to N-1
//
// An interruption at any step leaves the state unchanged, because the new sums entries replace the
// entries in older segments.
func (j *Journal) compact(dir string, old []segment) error {
	live := int64(len(j.left.samples)+3*len(j.left.open)) * entrySize
	if len(j.found.Damaged) == 0 && (j.found.Bytes < j.cfg.CompactAt || j.found.Bytes < worth*live) {
		return nil
	}
	last := old[len(old)-1]
	tmp := last.path + temporary
	if err := j.left.write(tmp, last.process, j.cfg.Mode); err != nil {
		return err
	}
	if err := os.Rename(tmp, last.path); err != nil {
		return err
	}
	if err := durable.SyncDir(dir); err != nil {
		return err
	}
	for _, seg := range old[:len(old)-1] {
		if err := os.Remove(seg.path); err != nil {
			return err
		}
	}
	j.found.Compacted = true
	return durable.SyncDir(dir)
}
