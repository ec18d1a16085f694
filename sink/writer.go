package sink

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/rollout-rl/rollout/sink/failpoint"
	"github.com/rollout-rl/rollout/tokenize"
)

// maxCommitSamples bounds an entry of the log to some megabytes, also where
// samples have no rows.
const maxCommitSamples = 1 << 16

// A writer owns one open shard of each kind and what waits for their commit. It
// runs in one goroutine.
type writer struct {
	d  *Dataset
	id int

	data     *openShard[StoredRow]     // nil before the first row
	failures *openShard[StoredFailure] // nil before the first failure
	meta     *shardMeta                // of the shards
	columns  *columnSet                // arenas of Arrow batches, kept from shard to shard
	codec    *pageCodec                // of Parquet pages, kept from shard to shard

	// samples and done belong together: what the next commit holds, with the groups
	// of the samples and each group's place. logged says which segments of the write-ahead
	// log hold them.
	samples []CommittedSample
	done    []func(error)
	groups  []CommittedGroup
	places  map[CommittedGroup]int32
	group   int32 // place of that of the last row
	logged  []logged
	since   time.Time // when the first of them came

	// held has what waits for its siblings; again is the segment from which it was last
	// read.
	held       hold
	heldBytes  int64 // of the samples in it that may stay in memory
	recovering bool  // samples take nothing of the budget: none stays in memory
	again      *segment
	file       File   // of again, for reading
	buf        []byte // for frames of it

	age   *time.Timer // runs while there is a sample
	timer time.Time   // when it fires; zero: it does not run

	row     StoredRow
	failure StoredFailure
	memory  rowMemory
	sealed  int64 // the number in the next shards' names
}

// logged counts samples of a segment.
type logged struct {
	segment *segment
	n       int
}

func newWriter(d *Dataset, id int) *writer {
	// Never one that an earlier process had committed: a rename replaces what is there,
	// and the digest's 32 bits in the name are not enough for every run.
	d.logMu.Lock()
	sealed := d.nextSeq - 1
	d.logMu.Unlock()
	w := &writer{d: d, id: id, meta: d.metaOf(d.cfg.Meta), codec: newPageCodec(), age: time.NewTimer(d.cfg.MaxShardAge), heldBytes: d.cfg.MaxBytesInFlight / int64(2*d.cfg.Writers), places: map[CommittedGroup]int32{}, sealed: sealed}
	w.age.Stop()
	w.held.groups = map[string]*heldGroup{}
	if d.cfg.Format == Arrow {
		w.columns = newColumnSet()
	}
	return w
}

// run takes samples from its queue until that ends or ctx is done. It returns with
// nothing open and every done called.
func (w *writer) run(ctx context.Context) error {
	defer w.age.Stop()
	q := w.d.wal.queues[w.id]
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
				w.held.putAllDown(w.d.budget) // nothing else would let them go on
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

// due reports whether groups that are whole must be committed now: nothing else waits for the
// writer, or the first of them has waited for as long as a sync may.
func (w *writer) due(q *queue) bool {
	return w.d.cfg.CommitGroups && len(w.samples) > 0 && (q.empty() || time.Since(w.since) >= syncEvery)
}

// old reports whether the open shards must be committed.
func (w *writer) old(now time.Time) bool {
	return len(w.samples) > 0 && !now.Before(w.since.Add(w.d.cfg.MaxShardAge))
}

// setTimer lets the timer fire when the oldest sample that is in no commit has waited for
// MaxShardAge.
func (w *writer) setTimer() {
	if w.d.cfg.CommitGroups {
		return
	}
	var since time.Time
	if len(w.samples) > 0 {
		since = w.since
	}
	if g := w.held.first; g != nil && (since.IsZero() || g.since.Before(since)) {
		since = g.since
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

// write writes one sample, which came then, into the open shards.
func (w *writer) write(a accepted, v verdict, since time.Time) error {
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
		if err := w.appendRow(s, i, v); err != nil {
			return err
		}
	}
	for i := range s.Failures {
		if err := w.appendFailure(s, i); err != nil {
			return err
		}
	}
	return nil
}

// place returns the place of a group among those of the next commit.
func (w *writer) place(g CommittedGroup) int32 {
	at, ok := w.places[g]
	if !ok {
		at = int32(len(w.groups))
		w.groups = append(w.groups, g)
		w.places[g] = at
	}
	return at
}

// log notes that the segment is needed until the next commit.
func (w *writer) log(s *segment) {
	if n := len(w.logged); n == 0 || w.logged[n-1].segment != s {
		w.logged = append(w.logged, logged{segment: s})
	}
	w.logged[len(w.logged)-1].n++
}

func (w *writer) full() bool {
	return len(w.samples) >= maxCommitSamples ||
		w.dataSize() >= w.d.cfg.MaxShardBytes ||
		w.failures != nil && w.failures.enc.size() >= w.d.cfg.MaxShardBytes
}

// dataSize is the size of the open data shard, 0 if there is none.
func (w *writer) dataSize() int64 {
	if w.data == nil {
		return 0
	}
	return w.data.enc.size()
}

func (w *writer) appendRow(s *tokenize.Sample, i int, v verdict) error {
	w.row.set(s, i, &w.memory)
	w.row.Keep, w.row.KeepReason = v.keep, v.reason
	err := w.putRow(&w.row)
	w.row = StoredRow{}
	return err
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

func (w *writer) appendFailure(s *tokenize.Sample, i int) error {
	w.failure.set(s, i)
	err := w.putFailure(&w.failure)
	w.failure = StoredFailure{}
	return err
}

func (w *writer) putFailure(f *StoredFailure) error {
	if w.failures == nil {
		shard, err := w.openFailures()
		if err != nil {
			return err
		}
		w.failures = shard
	}
	return w.failures.append(f, len(f.OutputIDs), true)
}

func (w *writer) openData() (*openShard[StoredRow], error) {
	d := w.d
	s, err := newOpenShard[StoredRow](d.cfg.FS, filepath.Join(d.dir, dataDir), KindData, d.cfg.Format)
	if err != nil {
		return nil, err
	}
	if d.cfg.Format == Arrow {
		s.enc = newArrowEncoder(s, w.columns, d.cfg.RowGroupTokens, w.meta[KindData])
		s.check = func(f File, size, rows int64) error { return readArrow(f, size, rows, nil) }
		return s, nil
	}
	s.enc = newParquetEncoder[StoredRow](s, w.codec, d.cfg.RowGroupTokens, w.meta[KindData])
	s.check = checkParquet[StoredRow]
	return s, nil
}

func (w *writer) openFailures() (*openShard[StoredFailure], error) {
	d := w.d
	s, err := newOpenShard[StoredFailure](d.cfg.FS, filepath.Join(d.dir, failuresDir), KindFailures, Parquet)
	if err != nil {
		return nil, err
	}
	s.enc = newParquetEncoder[StoredFailure](s, w.codec, d.cfg.RowGroupTokens, w.meta[KindFailures])
	s.check = checkParquet[StoredFailure]
	return s, nil
}

// commit seals the open shards and makes them exist, together: see the package
// documentation for the steps.
func (w *writer) commit() error {
	w.closeAgain() // its segment may go
	if len(w.samples) == 0 {
		return nil
	}
	d := w.d
	if !d.cfg.CommitGroups {
		d.wal.askForSegment()
	}
	var took SealTimes
	c := Commit{
		Version: CommitVersion, RunID: d.cfg.RunID, Writer: w.id, SchemaVersion: SchemaVersion,
		Groups: w.groups, Samples: w.samples,
	}
	shards, err := w.seal(fmt.Sprintf("part-%s-%d-%d", d.cfg.RunID, w.id, w.sealed), &took)
	w.sealed++
	if err != nil {
		return err
	}
	c.Shards = shards
	start := time.Now()
	c.CreatedAt = d.cfg.Now().UTC()
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
	w.samples, w.done, w.groups = nil, nil, nil // what is in c belongs to the event's receiver now
	clear(w.places)
	for _, f := range done {
		f(nil)
	}
	w.held.committed()
	w.setTimer()
	d.card.refresh()
	return nil
}

// seal seals the open shards under names that base begins, and makes the names durable. After an
// error it returns those that have their names.
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
	start := time.Now()
	for _, s := range shards {
		dir := filepath.Join(w.d.dir, s.Kind.String())
		if err := w.d.cfg.FS.SyncDir(dir); err != nil {
			return shards, &ShardError{Path: dir, Op: "sync", Err: err}
		}
	}
	failpoint.Hit(failpoint.ShardDirSynced)
	took.add(&took.Sync, start)
	return shards, nil
}

// giveUp abandons the open shards and tells their samples why. Shards that were
// sealed but not committed stay as orphans: the entry may have become durable
// although its last step failed.
func (w *writer) giveUp(err error) {
	if w.data != nil {
		w.data.abandon()
	}
	if w.failures != nil {
		w.failures.abandon()
	}
	w.data, w.failures = nil, nil
	w.d.pending(-len(w.samples))
	for _, f := range w.done {
		f(err)
	}
	w.samples, w.done, w.logged, w.groups = nil, nil, nil, nil // the write-ahead log keeps them
	w.closeAgain()
	for g := w.held.first; g != nil; g = g.next {
		w.d.drop(g.left(), err)
	}
	w.held = hold{}
}
