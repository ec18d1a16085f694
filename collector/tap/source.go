package tap

import (
	"context"
	"errors"
	"io"
	"os"
	"time"
)

// A source is where a Reader finds segments: a folder, or a tap.
type source interface {
	// list returns the segments, oldest first. Where none is newer than after, it may wait
	// for one for a while.
	list(ctx context.Context, after uint64) ([]segment, error)
	// open opens a segment. The error wraps os.ErrNotExist where it was removed.
	open(n uint64) (part, error)
	// skew is how far the clock of the tap is ahead of ours.
	skew() time.Duration
	close()
}

// A part is an open segment of a source.
type part interface {
	io.ReaderAt
	// grow returns how much can be read. Where there are no more bytes than before, it waits
	// a while. What is before from is not read again. The error wraps os.ErrNotExist where
	// the rest was removed.
	grow(ctx context.Context, from, before int64) (growth, error)
	close()
}

// A growth is what is known of an open segment.
type growth struct {
	size  int64     // bytes that can be read
	final bool      // no more will come
	idle  time.Time // nobody wrote the spool then, and nothing stands behind size; zero: not known
}

// A folder is the source of a spool that lies on this machine. Nothing tells it of changes:
// it looks at the files again and again.
type folder struct {
	dir    string
	seen   time.Time // the change of the folder at which it was listed last
	listed time.Time // when
	newest uint64    // then
}

// How often a folder is looked at: the open segment; the names, where the folder did not
// change by its own account.
const (
	pollEvery = 5 * time.Millisecond
	listEvery = 200 * time.Millisecond
	idlePolls = 200 // after so many in vain, a segment is looked at less often
	idleEvery = 25 * time.Millisecond
	lookEvery = 200 * time.Millisecond // for who writes it
)

func (f *folder) skew() time.Duration { return 0 }

func (f *folder) close() {}

func (f *folder) list(ctx context.Context, after uint64) ([]segment, error) {
	list, err := segments(f.dir)
	if err != nil || len(list) > 0 && list[len(list)-1].number > after {
		return list, err
	}
	return list, pause(ctx, pollEvery)
}

// hasNewer reports whether a segment was begun after segment n.
func (f *folder) hasNewer(n uint64) (bool, error) {
	info, err := os.Stat(f.dir)
	if err != nil {
		return false, err
	}
	now := time.Now()
	if f.newest <= n && (!info.ModTime().Equal(f.seen) || now.Sub(f.listed) > listEvery) {
		list, err := segments(f.dir)
		if err != nil {
			return false, err
		}
		f.seen, f.listed = info.ModTime(), now
		if len(list) > 0 {
			f.newest = list[len(list)-1].number
		}
	}
	return f.newest > n, nil
}

func (f *folder) open(n uint64) (part, error) {
	file, err := os.Open(segmentPath(f.dir, n))
	if err != nil {
		return nil, err
	}
	return &openFile{File: file, folder: f, number: n}, nil
}

// An openFile is a segment of a folder.
type openFile struct {
	*os.File
	folder *folder
	number uint64
	idle   int       // how often it had not grown
	looked time.Time // when it was last looked for who writes it
}

func (f *openFile) close() { _ = f.Close() } // read only

func (f *openFile) grow(ctx context.Context, _, before int64) (g growth, err error) {
	if g.size, err = f.size(); err != nil || g.size > before {
		f.idle = 0
		return g, err
	}
	if f.idle > 0 && time.Since(f.looked) > lookEvery {
		f.looked = time.Now()
		if isFree(f.folder.dir) {
			g.idle = f.looked // what was written before that is seen from here on
			f.folder.listed = time.Time{}
		}
	}
	// A segment is ended before the next one is begun.
	newer, err := f.folder.hasNewer(f.number)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return g, err
	}
	size, err := f.size()
	if newer || size > g.size || err != nil {
		return growth{size: size, final: newer}, err
	}
	if !g.idle.IsZero() {
		return g, nil
	}
	poll := pollEvery
	if f.idle++; f.idle > idlePolls {
		poll = idleEvery
	}
	return g, pause(ctx, poll)
}

func (f *openFile) size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// pause waits, or returns why ctx ended.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
