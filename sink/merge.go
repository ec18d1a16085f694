package sink

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/rollout-rl/rollout/sink/failpoint"
)

// Commits that are made as soon as a group is whole are small and many. While Run goes on, a
// merger makes one of those that follow each other in logical order and are of one size. So a
// row is written again once for each factor of eight by which its shard grows, and there are
// at most MergeAt-1 entries of each size at the end of the log.

// A mergeable is what the merger knows of an entry that counts.
type mergeable struct {
	seq     int64
	samples int
	units   int  // see unitsOf
	meta    int  // place in merger.metas of the key-values of its shards; -1: not known
	fixed   bool // it stays as it is
	failed  int  // merges that could not read it
}

// A merger merges small commits, in one goroutine of Run.
type merger struct {
	d     *Dataset
	wake  chan struct{} // a commit or an acknowledgement came; of one, and nobody waits for it
	list  []mergeable   // what counts, in logical order; guarded by Dataset.logMu
	metas []map[string]string

	w     *writer   // of merged shards
	gone  []goneSet // what was replaced and is not deleted
	left  []Commit  // what was replaced and is not moved, because that failed
	retry retry
}

// begin takes the log as it was read.
func (m *merger) begin(log *Log) {
	m.wake = make(chan struct{}, 1)
	m.metas = []map[string]string{maps.Clone(m.d.cfg.Meta)}
	for i := range log.Commits {
		m.add(&log.Commits[i], -1)
	}
}

// add takes an entry behind the others. Of entries whose samples were dropped the samples of
// merges are known, those of commits estimated by the shards.
func (m *merger) add(c *Commit, meta int) {
	e := mergeable{seq: c.Seq, samples: len(c.Samples), meta: meta}
	var bytes, rows int64
	for _, s := range c.Shards {
		bytes += s.Bytes
		rows += s.Rows
		e.fixed = e.fixed || s.Kind == KindData && s.Format != m.d.cfg.Format
	}
	if c.Samples == nil {
		for _, g := range c.Merged {
			e.samples += g.Samples
		}
		if !c.IsMerge() {
			e.samples = int(rows) // not less than there are samples with rows
		}
	}
	e.units = unitsOf(e.samples, bytes, m.d.cfg.MaxShardBytes)
	// Entries without groups cannot be told in a merge, nor rows of another schema. The row
	// groups of a large commit are blocks of the order in which readers shuffle: they stay.
	e.fixed = e.fixed || c.Version < 3 || c.SchemaVersion != SchemaVersion || !c.IsMerge() && c.tokens() > int64(m.d.cfg.RowGroupTokens)
	m.list = append(m.list, e)
}

// unitsOf is the size of an entry: maxCommitSamples stands for the largest one, by samples or by
// bytes.
func unitsOf(samples int, bytes, maxBytes int64) int {
	return max(samples, int(min(1+bytes*maxCommitSamples/maxBytes, 2*maxCommitSamples)))
}

// tierOf is the logarithm of a size, of base eight.
func tierOf(units int) int { return (bits.Len(uint(units)) - 1) / 3 }

// pick returns which entries to merge: at least least of them, one after the other, none of a
// higher tier than the others may be, from the lowest tier up. They fit into one commit, and the largest of them is
// not half of the whole: so a row is not written again for little.
func pick(list []mergeable, least int) (from, to int, ok bool) {
	for tier := range tierOf(maxCommitSamples) {
		for from := 0; from < len(list); from = max(to, from+1) {
			units, largest := 0, 0
			meta := -1
			for to = from; to < len(list); to++ {
				e := &list[to]
				if e.fixed || tierOf(e.units) > tier || units+e.units > maxCommitSamples || meta >= 0 && e.meta >= 0 && e.meta != meta {
					break
				}
				meta = max(meta, e.meta)
				units += e.units
				largest = max(largest, e.units)
			}
			if to-from >= least && units >= 2*largest {
				return from, to, true
			}
		}
	}
	return 0, 0, false
}

// run merges until the dataset is closed or ctx is done. An error is one of the log itself: a
// merge that fails otherwise is tried again later.
func (m *merger) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var stop sync.WaitGroup
	defer stop.Wait()
	defer cancel()
	stop.Go(func() {
		select {
		case <-m.d.draining:
			cancel()
		case <-ctx.Done():
		}
	})
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-m.wake:
		}
		for m.d.cfg.CommitGroups && m.retry.due() && ctx.Err() == nil {
			more, err := m.step(ctx)
			if fatal, ok := errors.AsType[*logError](err); ok {
				m.d.stop(fatal.err)
				return fatal.err
			}
			if err != nil && ctx.Err() == nil {
				more = m.failed(err)
			}
			if !more {
				break
			}
		}
		timer.Reset(min(m.deleteGone(), m.retry.wait()))
	}
}

// A logError is one of the commit log: it ends the run.
type logError struct{ err error }

func (e *logError) Error() string { return e.err.Error() }

// wakeUp tells the merger that there may be something to do.
func (m *merger) wakeUp() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// step makes one merge, if there is one to make. more says that there may be another.
func (m *merger) step(ctx context.Context) (more bool, err error) {
	if err := m.moveAway(); err != nil {
		return false, err
	}
	m.d.logMu.Lock()
	from, to, ok := pick(m.list, m.d.cfg.MergeAt)
	var list []mergeable
	if ok {
		list = slices.Clone(m.list[from:to])
	}
	m.d.logMu.Unlock()
	if !ok {
		return false, nil
	}
	if known, err := m.learnMeta(list); err != nil || !known {
		return err == nil, err // choose again, with what is known now
	}
	failpoint.Hit(failpoint.MergeStarted)
	c, sources, err := m.write(ctx, list)
	if err != nil {
		return false, err
	}
	failpoint.Hit(failpoint.MergeWritten)
	if err := m.commit(c, list, sources); err != nil {
		return false, &logError{err}
	}
	failpoint.Hit(failpoint.MergeCommitted)
	m.retry = retry{}
	m.d.cfg.Logger.Info("merged", "seq", c.Seq, "entries", len(list), "samples", len(c.Samples))
	m.d.card.end() // it names what stays, before the rest goes
	m.left = sources
	return true, m.moveAway()
}

// learnMeta reads the key-values of shards of which they are not known: merged rows must not
// get those of others. It reports whether it knew all of them.
func (m *merger) learnMeta(list []mergeable) (known bool, err error) {
	known = true
	for i := range list {
		if list[i].meta >= 0 {
			continue
		}
		known = false
		meta, err := m.metaOf(list[i].seq)
		if err != nil {
			return false, ofSource(list[i].seq, err)
		}
		m.d.logMu.Lock()
		at := slices.IndexFunc(m.list, func(e mergeable) bool { return e.seq == list[i].seq })
		m.list[at].meta = meta
		m.d.logMu.Unlock()
	}
	return known, nil
}

func (m *merger) metaOf(seq int64) (int, error) {
	log := &Log{Dir: m.d.dir, fs: m.d.cfg.FS}
	c, err := readCommit(log.fs, log.Dir, commitName(seq))
	if err != nil {
		return 0, err
	}
	meta := m.metas[0] // an entry without shards says nothing
	for i, s := range c.Shards {
		got, err := log.Meta(s)
		if err != nil {
			return 0, err
		}
		if i > 0 && !maps.Equal(got, meta) {
			return 0, fmt.Errorf("%s: other key-values than the other shard of its entry", s.Path)
		}
		meta = got
	}
	at := slices.IndexFunc(m.metas, func(o map[string]string) bool { return maps.Equal(o, meta) })
	if at < 0 {
		at = len(m.metas)
		m.metas = append(m.metas, meta)
	}
	return at, nil
}

// commit makes the merge the next entry of the log in place of those of list, durably.
func (m *merger) commit(c *Commit, list []mergeable, sources []Commit) error {
	d := m.d
	d.logMu.Lock()
	defer d.logMu.Unlock()
	c.Seq = d.nextSeq
	c.CreatedAt = d.cfg.Now().UTC()
	if err := putCommit(d.cfg.FS, d.dir, c); err != nil {
		return err
	}
	d.nextSeq = c.Seq + 1
	m.add(c, list[0].meta)
	n := len(m.list) - 1
	e := m.list[n]
	from := slices.IndexFunc(m.list, func(o mergeable) bool { return o.seq == list[0].seq })
	m.list = slices.Replace(m.list[:n], from, from+len(list), e)
	d.card.merge(c, sources)
	d.mu.Lock()
	d.stats.Merges++
	d.mu.Unlock()
	return nil
}

// keepGone is how long replaced files stay where no reader ever acknowledged anything.
const keepGone = 10 * time.Minute

// moveAway moves what a merge replaced to replaced/: first the shards, then the entries, so
// that a shard in data/ is always one of an entry in _commits/.
func (m *merger) moveAway() error {
	if len(m.left) == 0 {
		return nil
	}
	gone, err := moveReplaced(m.d.cfg.FS, m.d.dir, m.left, m.d.cfg.Now())
	if err != nil {
		return err
	}
	m.gone, m.left = append(m.gone, gone...), nil
	return nil
}

// deleteGone deletes what no reader needs any more, and returns when to try again.
func (m *merger) deleteGone() time.Duration {
	ack := m.d.Acknowledged()
	next := keepGone
	m.gone = slices.DeleteFunc(m.gone, func(g goneSet) bool {
		left := keepGone - m.d.cfg.Now().Sub(g.at)
		switch {
		case ack.RunID != "" && g.last >= ack.Seq, ack.RunID == "" && left > 0:
			if ack.RunID == "" {
				next = min(next, left)
			}
			return false
		}
		g.delete(m.d.cfg.FS, m.d.dir)
		return true
	})
	return next
}
