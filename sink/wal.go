package sink

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rollout-rl/rollout/sink/failpoint"
	"github.com/rollout-rl/rollout/sink/frame"
)

const (
	walDir  = "wal"
	walKind = "wal"
	walExt  = ".wal"
)

// syncEvery is the shortest time between syncs of the write-ahead log. It is also the longest
// time that a sample waits until a sync starts.
const syncEvery = 20 * time.Millisecond

// groupSegment is the size at which a segment ends if Config.CommitGroups is set. A new segment
// for every small commit would cost two more syncs per commit. A sample that waits for its group
// delays the deletion of at most one segment.
const groupSegment = 4 << 20

// A wal is the write-ahead log of a Dataset. Only the goroutine of the method run uses its files.
// Other goroutines send samples through a channel, and report commits with the method committed.
type wal struct {
	d     *Dataset
	every time.Duration
	in    chan accepted // unbuffered, so each sample has one owner
	turn  chan struct{} // requests a new segment; buffers one request
	queue *queue

	// Only the method run uses the following fields.
	file    File // open segment; nil between segments
	ended   File // the file of cur, from the end of this segment until the file is closed
	frames  *frame.Writer
	cur     *segment
	named   bool // cur's name is durable
	encoder sampleEncoder
	batch   []accepted // samples that are written but not durable
	batched int64      // number of bytes written for batch
	last    time.Time  // start of the last sync
	turning bool       // end the segment after this batch
	number  int64      // number of the next segment

	mu    sync.Mutex
	bytes int64 // total size of all segments
	syncs int64
}

// A segment is one file of the write-ahead log.
type segment struct {
	path string

	// guarded by wal.mu
	bytes   int64
	pending int  // number of samples that are not yet in a commit
	closed  bool // no more writes
}

func newWAL(d *Dataset) *wal {
	return &wal{d: d, every: syncEvery, in: make(chan accepted), turn: make(chan struct{}, 1), queue: newQueue(), number: 1}
}

func walHeader(n int64) frame.Header {
	return frame.Header{Kind: walKind, Version: walVersion, Number: uint64(n)}
}

// segmentName returns the name of segment n. Names sort in the order of the segment numbers.
func segmentName(n int64) string { return fmt.Sprintf("%08d%s", n, walExt) }

func segmentNumber(name string) (n int64, ok bool) {
	digits, found := strings.CutSuffix(name, walExt)
	if !found {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, err == nil && n > 0 && name == segmentName(n)
}

// run writes samples and syncs them in batches until the dataset drains or ctx is done. When run
// returns, each sample that it received is durable, or the caller of Append has received an
// error.
//
// run does not retry a failed write or sync, because the content of the file is then unknown.
func (w *wal) run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	defer func() { _ = w.closeEnded() }() // no later segment will close it
	defer w.endSegment()
	for {
		var err error
		select {
		case a := <-w.in:
			if len(w.batch) == 0 {
				timer.Reset(max(0, w.every-time.Since(w.last))) // after a pause, a sample is synced without a wait
			}
			w.batch = append(w.batch, a)
			err = w.write(a)
		case <-timer.C:
			err = w.sync()
		case <-w.turn:
			if w.turning = len(w.batch) > 0; !w.turning {
				w.endSegment()
			}
		case <-w.d.draining:
			if err = w.sync(); err == nil {
				w.close()
				return nil
			}
		case <-ctx.Done():
			// Sync the samples that were written. Do not close the queue, because the writer also
			// ends when ctx is done.
			if err = w.sync(); err == nil {
				return nil
			}
		}
		if err != nil {
			w.fail(err)
			w.close()
			return err
		}
	}
}

// close ends the segment and then closes the queue. In this order, the last commit can delete the
// segment.
func (w *wal) close() {
	w.endSegment()
	w.queue.close()
}

func (w *wal) write(a accepted) error {
	if w.file == nil {
		if err := w.open(); err != nil {
			return err
		}
	}
	before := w.frames.Size()
	if err := w.frames.End(w.encoder.append(w.frames.Begin(), a.sample)); err != nil {
		return &ShardError{Path: w.cur.path, Op: "write", Err: err}
	}
	failpoint.Hit(failpoint.WALWritten)
	size := w.frames.Size() - before
	w.grow(size, 1)
	last := &w.batch[len(w.batch)-1]
	last.segment, last.at, last.size = w.cur, before, size
	return nil
}

func (w *wal) grow(bytes int64, samples int) {
	w.batched += bytes
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cur.bytes += bytes
	w.cur.pending += samples
	w.bytes += bytes
}

func (w *wal) open() error {
	if err := w.syncEnded(); err != nil {
		return err
	}
	path := filepath.Join(w.d.dir, walDir, segmentName(w.number))
	f, err := w.d.fs.Create(path)
	if err != nil {
		return &ShardError{Path: path, Op: "create", Err: err}
	}
	w.file, w.cur, w.named = f, &segment{path: path}, false
	w.frames, err = frame.NewWriter(f, walHeader(w.number))
	w.number++
	if err != nil {
		return &ShardError{Path: path, Op: "write", Err: err}
	}
	w.grow(frame.HeaderSize, 0)
	return nil
}

// sync makes the batch durable, passes it to the writer, and lets the waiting calls of Append
// return.
func (w *wal) sync() error {
	if len(w.batch) == 0 {
		return nil
	}
	w.last = time.Now()
	if err := w.file.Sync(); err != nil {
		return &ShardError{Path: w.cur.path, Op: "sync", Err: err}
	}
	if !w.named {
		if err := w.d.fs.SyncDir(filepath.Dir(w.cur.path)); err != nil {
			return &ShardError{Path: w.cur.path, Op: "sync", Err: err}
		}
		w.named = true
	}
	failpoint.Hit(failpoint.WALSynced)
	w.mu.Lock()
	w.syncs++
	w.mu.Unlock()
	if synced := w.d.cfg.Events.Synced; synced != nil {
		synced(time.Since(w.last), len(w.batch), w.batched)
	}
	w.d.deliver(w.batch)
	for _, a := range w.batch {
		a.durable <- nil
	}
	failpoint.Hit(failpoint.WALAcked)
	clear(w.batch)
	w.batch = w.batch[:0]
	// Write a mark, which shows readers that all earlier frames were durable. So readers report
	// damage to these frames instead of treating them as torn.
	before := w.frames.Size()
	if err := w.frames.Synced(); err != nil {
		return &ShardError{Path: w.cur.path, Op: "write", Err: err}
	}
	w.grow(w.frames.Size()-before, 0)
	w.batched = 0
	if w.turning || w.d.cfg.CommitGroups && w.frames.Size() >= groupSegment {
		w.turning = false
		w.endSegment()
	}
	return nil
}

// fail stops the dataset and returns err to the callers of Append whose samples are not yet
// durable. The segment stays on disk for recovery.
func (w *wal) fail(err error) {
	w.d.stop(err)
	for _, a := range w.batch {
		a.durable <- err
	}
	w.batch = nil
}

// endSegment ends the open segment. The segment is deleted when all of its samples have been
// committed.
func (w *wal) endSegment() {
	if w.file == nil {
		return
	}
	w.ended, w.file = w.file, nil
	w.mu.Lock()
	w.cur.closed = true
	empty := w.cur.pending == 0
	w.mu.Unlock()
	if empty {
		w.remove(w.cur) // syncEnded still syncs the last mark, because a power failure can restore the file
	}
}

// syncEnded makes the last mark of the previous segment durable, and closes the file. It must run
// before the next segment is created, because readers treat a torn end as damage if a later
// segment exists.
func (w *wal) syncEnded() error {
	if w.ended == nil {
		return nil
	}
	if err := w.ended.Sync(); err != nil {
		return &ShardError{Path: w.cur.path, Op: "sync", Err: err}
	}
	return w.closeEnded()
}

func (w *wal) closeEnded() error {
	if w.ended == nil {
		return nil
	}
	f := w.ended
	w.ended = nil
	if err := f.Close(); err != nil {
		return &ShardError{Path: w.cur.path, Op: "close", Err: err}
	}
	return nil
}

// askForSegment requests a new segment. The writer calls askForSegment when it starts to seal its
// shards.
func (w *wal) askForSegment() {
	select {
	case w.turn <- struct{}{}:
	default:
	}
}

// committed records that n more samples in a segment have been committed. If the segment has
// ended and all of its samples have been committed, the segment is deleted.
func (w *wal) committed(s *segment, n int) {
	w.mu.Lock()
	s.pending -= n
	empty := s.closed && s.pending == 0
	w.mu.Unlock()
	if empty {
		w.remove(s)
	}
}

// remove deletes a segment. If the removal fails or a power failure undoes it, no harm is done,
// because recovery finds the samples in commits.
func (w *wal) remove(s *segment) {
	if err := w.d.fs.Remove(s.path); err != nil {
		w.d.cfg.Logger.Warn("cannot remove the segment", "path", s.path, "error", err)
	}
	failpoint.Hit(failpoint.WALDeleted)
	w.mu.Lock()
	w.bytes -= s.bytes
	w.mu.Unlock()
}
