package sink

import (
	"context"
	"io"
	"time"

	"github.com/rollout-rl/rollout/sink/failpoint"
	"github.com/rollout-rl/rollout/tokenize"
)

// maxCommitSamples limits the size of a log entry to a few megabytes, even for samples without
// rows.
const maxCommitSamples = 1 << 16

// A writer owns one open shard of each kind, and the samples for the next commit. It runs in one
// goroutine.
type writer struct {
	d *Dataset

	data     *openShard[StoredRow]     // nil before the first row
	failures *openShard[StoredFailure] // nil before the first failure
	meta     *shardMeta                // metadata of the shards
	batches  recycler                  // memory of Arrow batches, reused for all shards

	// The following fields describe the next commit: its samples and their done functions, their
	// groups, the index of each group (places), and the segments of the write-ahead log that
	// contain the samples.
	samples []CommittedSample
	done    []func(error)
	groups  []CommittedGroup
	places  map[CommittedGroup]int32
	group   int32 // index of the last row's group
	logged  []logged
	since   time.Time // the time at which the oldest sample in samples arrived

	// held contains the samples that wait for their group. The field again is the segment from
	// which the writer last reread a sample.
	held       hold
	heldBytes  int64 // limit on the memory for held samples, in bytes
	recovering bool  // during recovery, samples use no budget, and held samples are not kept in memory
	again      *segment
	file       File   // the open file of the segment in again
	buf        []byte // buffer for frames that are read from file

	age   *time.Timer // runs while a sample waits for its commit
	timer time.Time   // the time at which age fires; zero if age is stopped

	row     StoredRow
	failure StoredFailure
	memory  rowMemory
	sealed  int64 // number in the names of the next shards
}

// logged counts the samples from one segment in the next commit.
type logged struct {
	segment *segment
	n       int
}

func newWriter(d *Dataset) *writer {
	// Give new shards higher numbers than all committed shards, so that a rename never overwrites
	// a committed shard. The 32 bits of the digest in a file name do not rule out a collision.
	d.logMu.Lock()
	sealed := d.nextSeq - 1
	d.logMu.Unlock()
	w := &writer{
		d: d, meta: d.metaOf(d.ownMeta()), age: time.NewTimer(d.cfg.MaxShardAge),
		held: hold{groups: map[string]*heldGroup{}}, heldBytes: d.cfg.MaxBytesInFlight / 2,
		places: map[CommittedGroup]int32{}, sealed: sealed,
	}
	w.age.Stop()
	return w
}

// run writes samples until the queue ends or ctx is done. When run returns, no shard is open, and
// every done function has been called.
func (w *writer) run(ctx context.Context) error {
	defer w.age.Stop()
	q := w.d.wal.queue
	for {
		var err error
		select {
		case <-q.ready:
			a, ok, ended := q.pop()
			switch {
			case ok:
				err = w.take(a)
			case ended:
				if err = w.finish(); err == nil {
					w.leave()
					return nil
				}
			}
			if w.held.bytes > 0 && w.d.budget.waiting.Load() > 0 && q.empty() {
				w.held.putAllDown(w.d.budget) // otherwise a call of Append could wait forever for the budget
			}
		case now := <-w.age.C:
			w.timer = time.Time{}
			if err = w.writeLate(now); err == nil && w.old(now) {
				err = w.commit()
			}
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err == nil && w.due(q) {
			err = w.commit()
		}
		if err != nil {
			w.d.stop(err)
			w.giveUp(err)
			w.d.drop(q.leave(err), err)
			return err
		}
	}
}

// due reports whether Config.CommitGroups requires a commit now. A commit is due if the queue is
// empty, or if the oldest of the samples for the commit has waited for syncEvery.
func (w *writer) due(q *queue) bool {
	return w.d.cfg.CommitGroups && len(w.samples) > 0 && (q.empty() || time.Since(w.since) >= syncEvery)
}

// old reports whether a commit is required because the open shards are too old.
func (w *writer) old(now time.Time) bool {
	return len(w.samples) > 0 && !now.Before(w.since.Add(w.d.cfg.MaxShardAge))
}

// setTimer sets the timer to the time at which the age of the oldest uncommitted sample reaches
// MaxShardAge.
func (w *writer) setTimer() {
	if w.d.cfg.CommitGroups {
		return
	}
	var since time.Time
	if len(w.samples) > 0 {
		since = w.since
	}
	if len(w.held.list) > 0 && (since.IsZero() || w.held.list[0].since.Before(since)) {
		since = w.held.list[0].since
	}
	switch at := since.Add(w.d.cfg.MaxShardAge); {
	case since.IsZero():
		w.age.Stop()
		w.timer = time.Time{}
	case !at.Equal(w.timer):
		w.age.Reset(time.Until(at))
		w.timer = at
	}
}

// write writes one sample, which arrived at the given time, into the open shards.
func (w *writer) write(a accepted, v verdict, since time.Time) error {
	if !w.d.folder && max(w.dataSize(), w.failuresSize())+storedBytes(a.sample) > w.d.cfg.MaxShardBytes {
		if err := w.commit(); err != nil { // a store refuses larger shards
			w.d.drop([]accepted{a}, err)
			return err
		}
	}
	if len(w.samples) == 0 || since.Before(w.since) {
		w.since = since
	}
	s := a.sample
	w.samples = append(w.samples, CommittedSample{
		Key: s.Key, Attempt: s.Attempt, Rows: int32(len(s.Rows)), Failures: int32(len(s.Failures)),
		Group: w.place(groupOf(s)), Index: s.Index, Class: class(s), Filtered: v.filtered(s), Unshown: s.Unshown,
	})
	w.done = append(w.done, a.done)
	w.log(a.segment)
	err := w.encode(s, v)
	w.d.budget.release(a.bytes)
	return err
}

func (w *writer) encode(s *tokenize.Sample, v verdict) error {
	for i := range s.Rows {
		w.row.set(s, i, &w.memory)
		w.row.Keep, w.row.KeepReason = v.keep, v.reason
		if err := w.putRow(&w.row); err != nil {
			return err
		}
	}
	for i := range s.Failures {
		w.failure.set(s, i)
		if err := w.putFailure(&w.failure); err != nil {
			return err
		}
	}
	w.row, w.failure = StoredRow{}, StoredFailure{} // release the memory of s
	return nil
}

func (w *writer) place(g CommittedGroup) int32 {
	at, ok := w.places[g]
	if !ok {
		at = int32(len(w.groups))
		w.groups = append(w.groups, g)
		w.places[g] = at
	}
	return at
}

// log records that the next commit has one more sample from segment s.
func (w *writer) log(s *segment) {
	if n := len(w.logged); n == 0 || w.logged[n-1].segment != s {
		w.logged = append(w.logged, logged{segment: s})
	}
	w.logged[len(w.logged)-1].n++
}

func (w *writer) full() bool {
	return len(w.samples) >= maxCommitSamples ||
		max(w.dataSize(), w.failuresSize()) >= w.d.cfg.MaxShardBytes
}

func (w *writer) dataSize() int64 {
	if w.data == nil {
		return 0
	}
	return w.data.enc.size()
}

func (w *writer) failuresSize() int64 {
	if w.failures == nil {
		return 0
	}
	return w.failures.enc.size()
}

func (w *writer) putRow(r *StoredRow) error {
	if w.data == nil {
		shard, err := w.openData()
		if err != nil {
			return err
		}
		w.data = shard
	}
	group := w.samples[len(w.samples)-1].Group
	first := group != w.group || r.GroupID == "" && r.SegmentIndex == 0
	w.group = group
	err := w.data.append(r, len(r.InputIDs), first)
	if err == nil {
		w.data.sums.add(r)
	}
	return err
}

func (w *writer) putFailure(f *StoredFailure) error {
	if w.failures == nil {
		shard, err := openParquetShard[StoredFailure](w, KindFailures)
		if err != nil {
			return err
		}
		w.failures = shard
	}
	err := w.failures.append(f, len(f.OutputIDs), true)
	if err == nil {
		w.failures.sums.tokens.Lost.Count(f.Reason, f.Call, len(f.OutputIDs))
	}
	return err
}

func openParquetShard[T any](w *writer, kind Kind) (*openShard[T], error) {
	s, err := newOpenShard[T](w.d, kind, Parquet)
	if err == nil {
		s.enc = newParquetEncoder[T](s, w.d.cfg.RowGroupTokens, w.meta[kind])
		s.check = checkParquet[T]
	}
	return s, err
}

func (w *writer) openData() (*openShard[StoredRow], error) {
	if w.d.cfg.Format == Parquet {
		return openParquetShard[StoredRow](w, KindData)
	}
	s, err := newOpenShard[StoredRow](w.d, KindData, Arrow)
	if err != nil {
		return nil, err
	}
	if w.batches == nil {
		w.batches = recycler{}
	}
	s.enc = newArrowEncoder(s, w.batches, w.d.cfg.RowGroupTokens, w.meta[KindData])
	s.check = func(f io.ReaderAt, size, rows int64) error {
		return readArrow(f, rowRange{shard: Shard{Bytes: size, Rows: rows}}, nil, nil)
	}
	return s, nil
}

// commit seals the open shards and adds them to the log as one commit. The package documentation
// lists the steps.
func (w *writer) commit() error {
	w.closeAgain() // the segment that is open for rereading can be deleted after the commit
	if len(w.samples) == 0 {
		return nil
	}
	d := w.d
	defer d.beginCommit()()
	if !d.cfg.CommitGroups {
		d.wal.askForSegment()
	}
	var took SealTimes
	shards, err := w.seal(d.base("", w.sealed), &took)
	w.sealed++
	if err != nil {
		return err
	}
	c := Commit{Shards: shards, Groups: w.groups, Samples: w.samples}
	start := time.Now()
	if err := d.commit(&c); err != nil {
		return err
	}
	took.add(&took.Commit, start)
	for _, l := range w.logged {
		d.wal.committed(l.segment, l.n)
	}
	w.logged = nil
	if d.cfg.Events.Sealed != nil {
		d.cfg.Events.Sealed(took)
	}
	d.cfg.Logger.Info("committed", "seq", c.Seq, "samples", len(c.Samples), "shards", len(c.Shards))
	if d.cfg.Events.Committed != nil {
		d.cfg.Events.Committed(c)
	}
	done := w.done
	w.samples, w.done, w.groups = nil, nil, nil // the Committed callback owns c, which refers to these slices
	clear(w.places)
	for _, f := range done {
		f(nil)
	}
	w.held.committed()
	w.setTimer()
	d.card.refresh()
	d.checkpoint()
	return nil
}

// seal seals the open shards under names that begin with base. After an error, it returns the
// shards that already have their final names.
func (w *writer) seal(base string, took *SealTimes) ([]Shard, error) {
	shards := []Shard{}
	if s := w.data; s != nil {
		w.data = nil
		shard, err := s.seal(base, took)
		if err != nil {
			return shards, err
		}
		shards = append(shards, shard)
	}
	if s := w.failures; s != nil {
		w.failures = nil
		shard, err := s.seal(base, took)
		if err != nil {
			return shards, err
		}
		shards = append(shards, shard)
	}
	failpoint.Hit(failpoint.ShardDirSynced)
	return shards, nil
}

// giveUp abandons the open shards and passes err to the done functions of their samples. Shards
// that were sealed but not committed remain as orphans. They must not be deleted, because the log
// entry can be durable even if the last step of the commit failed.
func (w *writer) giveUp(err error) {
	w.data.abandon()
	w.failures.abandon()
	w.data, w.failures = nil, nil
	w.d.pending(-len(w.samples))
	for _, f := range w.done {
		f(err)
	}
	w.samples, w.done, w.logged, w.groups = nil, nil, nil, nil // the samples are still in the write-ahead log
	w.closeAgain()
	for _, g := range w.held.list {
		w.d.drop(g.left(), err)
	}
	w.held = hold{}
}
