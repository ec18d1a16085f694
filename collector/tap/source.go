package tap

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/rollout-rl/rollout/collector/wait"
)

// A source provides segments to a Reader, from a folder or from the URL of a tap.
type source interface {
	// list returns the segments, oldest first. The parameter after is a segment number. If no newer
	// segment exists, list can wait a while for a newer segment.
	list(ctx context.Context, after uint64) ([]segment, error)
	// open opens a segment. The error wraps os.ErrNotExist if the segment was removed.
	open(n uint64) (part, error)
	// skew returns how far the tap's clock is ahead of this machine's clock.
	skew() time.Duration
	close()
}

type part interface {
	io.ReaderAt
	// grow returns how many bytes can be read. The parameter before is the last known number. If no
	// bytes have been added since, grow waits a while for more bytes. The parameter from is the
	// lowest offset that the caller still needs. The error wraps os.ErrNotExist if the rest of the
	// segment was removed.
	grow(ctx context.Context, from, before int64) (growth, error)
	close()
}

type growth struct {
	size  int64     // the number of bytes that can be read
	final bool      // the segment will not grow
	idle  time.Time // a time when no process was writing to the spool and all bytes had been read; zero: unknown
}

// A folder is a source that reads a spool on this machine. It polls the files for changes.
type folder struct {
	dir    string
	seen   time.Time // the folder's modification time at the last listing
	listed time.Time // when the folder was last listed
	newest uint64    // the number of the newest segment at the last listing
}

// These are the polling intervals for a folder. listEvery applies to the list of segments while the
// folder's modification time does not change.
const (
	pollEvery = 5 * time.Millisecond
	listEvery = 200 * time.Millisecond
	idlePolls = 200 // after idlePolls polls without growth, a segment is polled only every idleEvery
	idleEvery = 25 * time.Millisecond
	lookEvery = 200 * time.Millisecond // how often an idle segment's lock is checked
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

type openFile struct {
	*os.File
	folder *folder
	number uint64
	idle   int       // number of consecutive polls without growth
	looked time.Time // when the lock was last checked
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
			g.idle = f.looked // the size that is read below includes all bytes written before this time
			f.folder.listed = time.Time{}
		}
	}
	// After a newer segment has been created, nothing more is written to this segment.
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

// pause waits for the duration d. If ctx ends first, pause returns the cause.
func pause(ctx context.Context, d time.Duration) error {
	if wait.For(ctx, d) {
		return nil
	}
	return context.Cause(ctx)
}
