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

// Config.CommitGroups makes many small commits. While Run works, a merger replaces neighbours of
// one size by one entry. A row is written again each time its shard grows eightfold, and the log
// ends with at most MergeAt-1 entries of each size.

// A mergeable describes an entry that no merge has replaced.
type mergeable struct {
	seq     int64
	samples int
	units   int  // its size, see unitsOf
	meta    int  // index in merger.metas of the key-values of its shards; -1: not read yet
	fixed   bool // no merge takes it
	failed  int  // counts merges that could not read it
}

// A merger merges small commits, in one goroutine of Run.
type merger struct {
	d     *Dataset
	wake  chan struct{} // a commit or an acknowledgement came; holds one, so that no sender waits
	list  []mergeable   // in logical order; guarded by Dataset.logMu
	metas []map[string]string

	w     *writer   // of merged shards
	gone  []goneSet // replaced and not deleted yet
	left  []Commit  // replaced, and not moved because an error came first
	retry retry
}

// begin adds the entries of the log that Create has read.
func (m *merger) begin(log *Log) {
	m.wake = make(chan struct{}, 1)
	m.metas = []map[string]string{maps.Clone(m.d.cfg.Meta)}
	for i := range log.Commits {
		m.add(&log.Commits[i], -1)
	}
}

// add adds an entry at the end. Without its Samples, it counts those of a merge by Merged and
// estimates those of a commit by its rows.
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
	// A merge cannot describe entries without groups, or rows of another schema. Readers shuffle
	// by the row groups of a large commit, so these must stay.
	e.fixed = e.fixed || c.Version < 3 || c.SchemaVersion != SchemaVersion || !c.IsMerge() && c.tokens() > int64(m.d.cfg.RowGroupTokens)
	m.list = append(m.list, e)
}

// unitsOf returns the size of an entry, by samples or by bytes, whichever is nearer to its limit.
// The limit is maxCommitSamples.
func unitsOf(samples int, bytes, maxBytes int64) int {
	return max(samples, int(min(1+bytes*maxCommitSamples/maxBytes, 2*maxCommitSamples)))
}

// tierOf returns the logarithm of a size to base eight.
func tierOf(units int) int { return (bits.Len(uint(units)) - 1) / 3 }

// pick chooses neighbours to merge, at least least of them. It tries the lowest tier first and
// takes no entry of a higher one. The chosen entries fit into one commit, and none is half of the
// whole: else its rows would be written again for little.
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

// run merges until the dataset is closed or ctx is done. It returns only errors of the commit log;
// after any other error it tries again later.
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

// A logError is an error of the commit log. It ends the run.
type logError struct{ err error }

func (e *logError) Error() string { return e.err.Error() }

// wakeUp makes the merger look for something to do.
func (m *merger) wakeUp() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// step makes one merge, if pick finds one. more reports whether another may follow.
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

// learnMeta reads the key-values of the shards that were not read yet, because rows of shards with
// different ones are not merged. known reports whether there was nothing to read.
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

// commit makes the merge the next entry of the log, durably, and puts it in the place of list.
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
	m.gone, m.left, m.retry = append(m.gone, gone...), nil, retry{}
	return nil
}

// deleteGone deletes replaced files that no reader needs any more, and returns when to try again.
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
