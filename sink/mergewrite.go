package sink

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"time"
)

// write writes the shards of a merge. It returns the new entry for put, and the replaced
// entries without their samples. In memory, write keeps one row group, the new entry, and one
// replaced entry at a time.
func (m *merger) write(ctx context.Context, list []mergeable) (_ *Commit, sources []Commit, err error) {
	d := m.d
	w := &writer{d: d, places: map[CommittedGroup]int32{}} // this writer only writes shards
	m.w = w
	defer func() {
		w.data.abandon()
		w.failures.abandon()
		m.w = nil // release the large buffers
	}()
	w.meta = d.metaOf(m.metas[list[0].meta])
	c := new(Commit)
	var replaced seqSet
	for i := range list {
		source, _, err := d.readCommit(list[i].seq)
		if err == nil {
			err = m.copy(ctx, &source)
		}
		if err != nil {
			return nil, nil, ofSource(list[i].seq, err)
		}
		replaced = replaced.add(SeqRange{source.Seq, source.Seq})
		for _, r := range source.Replaces {
			replaced = replaced.add(r)
		}
		if source.IsMerge() {
			c.Merged = append(c.Merged, source.Merged...)
		} else {
			c.Merged = append(c.Merged, source.merged())
		}
		source.Groups, source.Samples = nil, nil
		sources = append(sources, source)
	}
	c.Replaces, c.Groups, c.Samples = replaced, w.groups, w.samples
	n := list[0].seq
	if !d.folder {
		m.written++ // a second try must not use the same names
		n = m.written
	}
	c.Shards, err = w.seal(d.base(mergeMark, n), new(SealTimes))
	if err != nil {
		for _, s := range c.Shards { // remove the new shards, because a reader that ignores the log would read the rows twice
			_ = d.objects.Delete(s.Path) // if Delete fails, the next Create removes the shard
		}
		return nil, nil, err
	}
	return c, sources, nil
}

// copy checks the digests of an entry's shards and copies their rows unchanged.
func (m *merger) copy(ctx context.Context, c *Commit) error {
	log := &Log{location: m.d.location}
	w := m.w
	rest := newRest(ctx)
	next := 0 // index of the next sample of c
	take := func() *CommittedSample {
		s := c.Samples[next]
		s.Group = w.place(c.Groups[s.Group])
		w.samples = append(w.samples, s)
		next++
		return &w.samples[len(w.samples)-1]
	}
	var current *CommittedSample
	left := int32(0) // number of remaining rows of current
	row := func(r *StoredRow) error {
		for left == 0 {
			if next == len(c.Samples) {
				return notOf(c, fmt.Errorf("a row of sample %s follows the rows of the entry's last sample", r.SampleKey))
			}
			current = take()
			left = current.Rows
		}
		left--
		if err := current.owns(r.SampleKey, r.Attempt); err != nil {
			return notOf(c, err)
		}
		if err := w.putRow(r); err != nil {
			return err
		}
		return rest.take(13*len(r.InputIDs) + textBytes(r))
	}
	for _, s := range c.Shards {
		if s.Kind == KindData {
			if err := log.eachRow(s, row); err != nil {
				return err
			}
			continue
		}
		for f, err := range log.Failures(s) {
			if err == nil {
				err = w.putFailure(f)
			}
			if err == nil {
				err = rest.take(8*len(f.OutputIDs) + len(f.Text))
			}
			if err != nil {
				return err
			}
		}
	}
	for next < len(c.Samples) { // the remaining samples have no rows
		take()
	}
	return nil
}

// eachRow calls yield with each row of a data shard until yield returns an error. yield must not keep
// the row.
func (l *Log) eachRow(s Shard, yield func(*StoredRow) error) (err error) {
	var failed error
	more := func(r *StoredRow) bool {
		failed = yield(r)
		return failed == nil
	}
	err = l.factsOf(s, func(f io.ReaderAt, in rowRange) error { return readRows(f, in, more) })
	if failed != nil {
		return failed
	}
	return err
}

// A rest makes the merger pause half of the time, so that the writer has priority.
type rest struct {
	ctx   context.Context // context of one merge
	since time.Time
	bytes int
}

// restBytes is the number of bytes that the merger copies between two pauses. Copying this amount
// takes a few milliseconds.
const restBytes = 1 << 20

func newRest(ctx context.Context) *rest { return &rest{ctx: ctx, since: time.Now()} }

// take counts copied bytes. After every restBytes bytes, it sleeps for as long as the copying took,
// but for at most one second. If the context is done, take returns the cause.
func (r *rest) take(bytes int) error {
	if r.bytes += bytes; r.bytes < restBytes {
		return context.Cause(r.ctx)
	}
	r.bytes = 0
	runtime.Gosched()
	select {
	case <-r.ctx.Done():
	case <-time.After(min(time.Since(r.since), time.Second)):
	}
	r.since = time.Now()
	return context.Cause(r.ctx)
}
