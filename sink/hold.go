package sink

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/rollout-rl/rollout/sink/frame"
	"github.com/rollout-rl/rollout/tokenize"
)

// maxHeld limits the number of samples that a writer holds, and the size of a held group. With this
// limit, released samples take at most a few megabytes of memory.
const maxHeld = 1 << 14

// maxHeldCommits is the number of commits during which the writer holds an incomplete group.
// Segments of the write-ahead log that contain held samples cannot be deleted. With this limit, at
// most the segments of two more commits are kept.
const maxHeldCommits = 2

// A hold contains the finished samples of incomplete groups. All of these samples are durable, so
// the writer can release a sample from memory and later reread the sample from the write-ahead log.
type hold struct {
	groups map[string]*heldGroup // by id
	list   []*heldGroup          // in order of their first samples
	n      int                   // number of samples
	bytes  int64                 // the samples' share of the budget, without released samples
}

// A heldGroup is an incomplete group with held samples.
type heldGroup struct {
	id      CommittedGroup // its size is the largest size that any sample in list has
	list    []accepted
	taken   int           // list[:taken] has been written
	seen    []bool        // seen[i] is true if a sample in list[:counted] or in a commit has index i
	counted int           // number of samples in list that are counted in seen; 0 while list is too short for a whole group
	indexes int           // number of different indexes in list[:counted] and in commits
	facts   []SampleFacts // facts about the samples in list; nil without Config.Judge
	known   known         // the part of the group that has already been committed
	since   time.Time     // when the first sample in list arrived
	commits int           // number of commits since the first sample arrived
}

func (h *hold) add(a accepted, now time.Time) *heldGroup {
	id := groupOf(a.sample)
	g := h.groups[id.ID]
	if g == nil {
		g = &heldGroup{id: id, since: now}
		h.groups[id.ID], h.list = g, append(h.list, g)
	}
	if id.Size > g.id.Size { // the size was raised while samples were held
		g.id.Size, g.counted, g.indexes = id.Size, 0, 0
	}
	a.index = a.sample.Index
	g.list = append(g.list, a)
	h.n++
	h.bytes += a.bytes
	return g
}

// whole reports whether every index of the group has an outcome. The total time of all calls is
// constant per sample. When the list is long enough for a whole group, whole also takes one byte of
// memory per index.
func (g *heldGroup) whole() bool {
	if len(g.list)+len(g.known.indexes) < int(g.id.Size) {
		return false
	}
	see := func(at int32) { // samples in the write-ahead log can have invalid indexes
		if at >= 0 && at < g.id.Size && !g.seen[at] {
			g.seen[at] = true
			g.indexes++
		}
	}
	if g.counted == 0 {
		g.seen = make([]bool, g.id.Size)
		for _, at := range g.known.indexes {
			see(at)
		}
	}
	for ; g.counted < len(g.list); g.counted++ {
		see(g.list[g.counted].index)
	}
	return g.indexes == int(g.id.Size)
}

func (h *hold) end(g *heldGroup) {
	delete(h.groups, g.id.ID)
	if h.list[0] == g { // the usual case, because writeLate and finish end groups in this order
		h.list[0], h.list = nil, h.list[1:]
		return
	}
	at := slices.Index(h.list, g)
	h.list = slices.Delete(h.list, at, at+1)
}

func (g *heldGroup) left() []accepted { return g.list[g.taken:] }

// take removes and returns the next unwritten sample of a group. After the last sample, take
// removes the group from h.
func (h *hold) take(g *heldGroup) accepted {
	a := g.list[g.taken]
	g.list[g.taken] = accepted{}
	h.n--
	h.bytes -= a.bytes
	if g.taken++; g.taken == len(g.list) {
		h.end(g)
	}
	return a
}

// putDown releases a held sample from memory, and releases the sample's share of the budget.
func (h *hold) putDown(a *accepted, b *budget) {
	h.bytes -= a.bytes
	b.release(a.bytes)
	a.sample, a.bytes = nil, 0
}

func (h *hold) putAllDown(b *budget) {
	for _, g := range h.list {
		for i := range g.left() {
			if a := &g.left()[i]; a.sample != nil {
				h.putDown(a, b)
			}
		}
	}
}

func (h *hold) committed() {
	for _, g := range h.list {
		g.commits++
	}
}

func groupOf(s *tokenize.Sample) CommittedGroup {
	return CommittedGroup{ID: s.GroupID, Size: s.GroupSize}
}

// take holds a sample until its group is whole. If the sample need not wait, take writes it
// immediately.
func (w *writer) take(a accepted) error {
	now := time.Now()
	id := groupOf(a.sample)
	var known known
	g := w.held.groups[id.ID]
	if g == nil {
		known = w.known(id)
	} else {
		id.Size = max(id.Size, g.id.Size)
	}
	if known.whole || id.ID == "" || id.Size <= 1 || id.Size > maxHeld {
		if g != nil { // the size of the group was raised above maxHeld
			if err := w.writeGroup(g); err != nil {
				return err
			}
		}
		if err := w.write(a, w.judgeOne(a.sample, id, known), now); err != nil {
			return err
		}
		if err := w.commitFull(); err != nil {
			return err
		}
		return w.writeLate(now)
	}
	g = w.held.add(a, now)
	if len(g.list) == 1 {
		g.known = known
	}
	if w.d.cfg.Judge != nil {
		g.facts = append(g.facts, factsOf(a.sample))
	}
	if g.whole() {
		if err := w.writeGroup(g); err != nil {
			return err
		}
	} else if last := &g.list[len(g.list)-1]; w.held.bytes > w.heldBytes || w.recovering {
		w.held.putDown(last, w.d.budget)
	}
	return w.writeLate(now)
}

// writeLate writes groups that have been held too long, and sets the timer for the next group. With
// Config.CommitGroups, it does nothing.
func (w *writer) writeLate(now time.Time) error {
	if w.d.cfg.CommitGroups {
		return nil
	}
	for len(w.held.list) > 0 {
		g := w.held.list[0]
		if g.commits < maxHeldCommits && w.held.n <= maxHeld && now.Before(g.since.Add(w.d.cfg.MaxShardAge)) {
			break
		}
		if err := w.writeGroup(g); err != nil {
			return err
		}
	}
	w.setTimer()
	return nil
}

// A sample's size in open pages is at most openBytes times its size in the write-ahead log.
const openBytes = 4

// writeGroup writes the held samples of a group in index order. If the samples fit, it writes them
// to a single shard.
func (w *writer) writeGroup(g *heldGroup) error {
	slices.SortStableFunc(g.list, func(a, b accepted) int { return cmp.Compare(a.index, b.index) })
	var size int64
	for i := range g.list {
		size += g.list[i].size
	}
	if len(w.samples) > 0 && w.dataSize()+openBytes*size > w.d.cfg.MaxShardBytes {
		if err := w.commit(); err != nil {
			return err
		}
	}
	since := g.since
	if w.d.cfg.CommitGroups {
		since = time.Now()
	}
	facts := w.judge(g)
	for i := range len(g.list) {
		if a := &g.list[g.taken]; a.sample == nil {
			s, err := w.readAgain(a)
			if err != nil {
				return err
			}
			a.sample = s
		}
		v := verdictOf(g.known)
		if facts != nil {
			v = facts[i].verdict()
		}
		if err := w.write(w.held.take(g), v, since); err != nil {
			return err
		}
		if w.d.cfg.CommitGroups { // even a very large group is in a single commit, unless a store refuses it
			continue
		}
		if err := w.commitFull(); err != nil {
			return err
		}
	}
	return w.commitFull()
}

func (w *writer) commitFull() error {
	if !w.full() {
		return nil
	}
	return w.commit()
}

func (w *writer) readAgain(a *accepted) (*tokenize.Sample, error) {
	payload, err := w.readFrame(a)
	if err != nil {
		return nil, err
	}
	s, err := decodeSample(payload)
	if err != nil {
		return nil, &ShardError{Path: a.segment.path, Op: "read", Err: fmt.Errorf("offset %d: %w", a.at, err)}
	}
	return s, nil
}

// readFrame reads the payload of a sample from the write-ahead log. The payload is valid until the
// next call.
func (w *writer) readFrame(a *accepted) ([]byte, error) {
	fail := func(err error) ([]byte, error) {
		return nil, &ShardError{Path: a.segment.path, Op: "read", Err: err}
	}
	if w.again != a.segment {
		w.closeAgain()
		f, err := w.d.fs.Open(a.segment.path)
		if err != nil {
			return fail(err)
		}
		w.again, w.file = a.segment, f
	}
	payload, buf, err := frame.At(w.file, a.at, a.size, w.buf)
	if w.buf = buf; err != nil {
		return fail(err)
	}
	return payload, nil
}

// At a commit, a writer drops its frame buffer if the buffer is larger than keepFrame.
const keepFrame = 4 << 20

func (w *writer) closeAgain() {
	if cap(w.buf) > keepFrame {
		w.buf = nil
	}
	if w.again != nil {
		_ = w.file.Close() // read-only
		w.again, w.file = nil, nil
	}
}

// finish writes the held groups and commits. With Config.CommitGroups, it leaves held groups in the
// write-ahead log unless CommitParts was called.
func (w *writer) finish() error {
	parts := !w.d.cfg.CommitGroups || w.d.parts.Load()
	for parts && len(w.held.list) > 0 {
		if err := w.writeGroup(w.held.list[0]); err != nil {
			return err
		}
	}
	return w.commit()
}

// leave calls the done functions of all held samples with ErrWaiting. The samples stay in the
// write-ahead log.
func (w *writer) leave() {
	for _, g := range w.held.list {
		for _, a := range g.left() {
			w.d.budget.release(a.bytes)
			a.done(ErrWaiting)
		}
	}
	w.held = hold{}
}
