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

// A merger replaces neighboring entries of similar size with one entry, so that at most MergeAt-1
// neighboring entries of each size tier remain.

// A mergeable describes an entry that no merge has replaced.
type mergeable struct {
	seq     int64
	samples int
	units   int  // size of the entry; see unitsOf
	meta    int  // index in merger.metas of the shards' metadata; -1 if not yet read
	fixed   bool // whether the entry is excluded from merges
	failed  int  // number of merges that could not read the entry
}

// A merger merges small commits, in one goroutine of Run.
type merger struct {
	d     *Dataset
	wake  chan struct{} // signals a commit or an acknowledgement; buffered, so that senders do not block
	list  []mergeable   // in logical order; guarded by Dataset.logMu
	metas []map[string]string

	w       *writer   // writes the merged shards
	written int64     // merges of this epoch, with failed ones
	gone    []goneSet // replaced entries that have not yet been deleted
	left    []Commit  // replaced entries that have not yet been moved
	retry   retry
}

func (m *merger) begin(log *Log) {
	m.wake = make(chan struct{}, 1)
	m.metas = []map[string]string{maps.Clone(m.d.cfg.Meta)}
	for i := range log.Commits {
		m.add(&log.Commits[i], -1)
	}
}

// add appends an entry to m.list. For a merge whose samples were dropped, add uses the number of
// samples in c.Merged. For a commit whose samples were dropped, add uses the rows to estimate the
// number of samples.
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
			e.samples = int(rows) // an upper bound for the number of samples with rows
		}
	}
	e.units = unitsOf(e.samples, bytes, m.d.cfg.MaxShardBytes)
	// Readers shuffle the row groups of a large commit, so the commit's shard must not be
	// rewritten.
	e.fixed = e.fixed || !c.IsMerge() && c.tokens() > int64(m.d.cfg.RowGroupTokens)
	m.list = append(m.list, e)
}

// unitsOf returns the size of an entry in units. This is the number of samples or the scaled number
// of bytes, whichever is larger. maxBytes bytes correspond to maxCommitSamples units.
func unitsOf(samples int, bytes, maxBytes int64) int {
	return max(samples, int(min(1+bytes*maxCommitSamples/maxBytes, 2*maxCommitSamples)))
}

// tierOf returns the logarithm of units to base 8, rounded down.
func tierOf(units int) int { return (bits.Len(uint(units)) - 1) / 3 }

// pick chooses neighboring entries to merge and returns their range in list. The argument least is
// the minimum number of entries. pick tries the lowest tier first and excludes entries above the
// current tier. The chosen entries fit into one commit. No chosen entry is larger than all other
// chosen entries together, because rewriting its rows would gain little.
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

// run makes merges until the dataset is closed or ctx is done. If a merge fails, run retries it
// later. Only a *logError makes run return early.
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

// A logError means that a write to the commit log failed. Such an error ends the run.
type logError struct{ err error }

func (e *logError) Error() string { return e.err.Error() }

func (m *merger) wakeUp() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// step makes one merge if pick finds suitable entries. more is true if step must be called again.
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
		return err == nil, err // pick again, because more metadata is now known
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
	m.d.checkpoint()
	m.retry = retry{}
	m.d.cfg.Logger.Info("merged", "seq", c.Seq, "entries", len(list), "samples", len(c.Samples))
	m.d.card.end() // otherwise the card would name files that are about to move
	if m.d.folder {
		m.left = sources
	}
	return true, m.moveAway()
}

// learnMeta reads the shard metadata of all entries in list whose metadata has not yet been read.
// Shards with different metadata are not merged. known is true if the metadata of all entries was
// already known.
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
	log := &Log{location: m.d.location}
	c, _, err := log.readCommit(seq)
	if err != nil {
		return 0, err
	}
	meta := m.metas[0] // an entry without shards can have any metadata
	for i, s := range c.Shards {
		got, err := log.Meta(s)
		if err != nil {
			return 0, err
		}
		if i > 0 && !maps.Equal(got, meta) {
			return 0, fmt.Errorf("%s: the key-value metadata differs from the metadata of the entry's other shard", s.Path)
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

// commit durably writes the merge as the next entry of the log. In m.list, it replaces the entries
// in list with the merge.
func (m *merger) commit(c *Commit, list []mergeable, sources []Commit) error {
	d := m.d
	d.logMu.Lock()
	defer d.logMu.Unlock()
	if err := d.put(c); err != nil {
		return err
	}
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

// keepGone is how long replaced files are kept if no reader has ever acknowledged any groups.
const keepGone = 10 * time.Minute

// moveAway moves the files of the entries in m.left to replaced/. It moves shards before entries,
// so that every shard in data/ is always named by an entry in _commits/.
func (m *merger) moveAway() error {
	if len(m.left) == 0 {
		return nil
	}
	gone, err := moveReplaced(m.d.fs, m.d.dir, m.left, m.d.cfg.Now())
	if err != nil {
		return err
	}
	m.gone, m.left, m.retry = append(m.gone, gone...), nil, retry{}
	return nil
}

// deleteGone deletes replaced files that no reader needs. It returns the time to wait before the
// next call.
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
		g.delete(m.d.fs, m.d.dir)
		return true
	})
	return next
}
