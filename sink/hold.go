package sink

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/rollout-rl/rollout/sink/frame"
	"github.com/rollout-rl/rollout/tokenize"
)

// maxHeld bounds what a writer notes of held samples to some megabytes, and the size of
// the groups that it holds together.
const maxHeld = 1 << 14

// maxHeldCommits is how many commits of its writer a group is held over. What is held keeps
// its segments of the write-ahead log, so there are at most as many more as two shards have.
const maxHeldCommits = 2

// A hold has the samples of one writer that are finished while siblings of theirs are not.
// All of them are durable: what takes too much memory is put down, and read again from the
// write-ahead log.
type hold struct {
	groups      map[string]*heldGroup // by id
	first, last *heldGroup            // in the order in which they were begun
	free        []*heldGroup          // with the memory of their lists
	n           int                   // samples
	bytes       int64                 // of the budget: of the samples that are in memory
}

// A heldGroup is a group of which not all samples have an outcome, as far as one hold knows.
type heldGroup struct {
	id         CommittedGroup // with the largest size of list
	list       []accepted
	taken      int           // list[:taken] is gone
	seen       []bool        // by index: is in list[:counted]
	counted    int           // 0 until list is as long as the group is large
	indexes    int           // different ones in list[:counted]
	facts      []SampleFacts // of list, for Config.Judge; nil without it
	known      known         // in commits already
	since      time.Time     // when the first of list came
	commits    int           // of the writer since then
	prev, next *heldGroup
}

// maxFree is how many groups are kept for the next ones, and maxFreeList how long their
// lists may be.
const maxFree, maxFreeList = 256, 64

// add takes a sample, and returns its group.
func (h *hold) add(a accepted, now time.Time) *heldGroup {
	id := groupOf(a.sample)
	g := h.groups[id.ID]
	if g == nil {
		g = h.begin(id)
		g.since = now
	}
	if id.Size > g.id.Size { // it was raised while the first ones waited
		g.id.Size, g.counted, g.indexes = id.Size, 0, 0
	}
	a.index = a.sample.Index
	g.list = append(g.list, a)
	h.n++
	h.bytes += a.bytes
	return g
}

// whole reports whether each sample of the group has an outcome. It takes constant time per
// sample in the list, and a byte for each once there are as many as the group has.
func (g *heldGroup) whole() bool {
	if len(g.list)+len(g.known.indexes) < int(g.id.Size) {
		return false
	}
	see := func(at int32) { // the write-ahead log may say any
		if at >= 0 && at < g.id.Size && !g.seen[at] {
			g.seen[at] = true
			g.indexes++
		}
	}
	if g.counted == 0 {
		g.seen = append(g.seen[:0], make([]bool, g.id.Size)...)
		for _, at := range g.known.indexes {
			see(at)
		}
	}
	for ; g.counted < len(g.list); g.counted++ {
		see(g.list[g.counted].index)
	}
	return g.indexes == int(g.id.Size)
}

// begin adds a group.
func (h *hold) begin(id CommittedGroup) *heldGroup {
	var g *heldGroup
	if n := len(h.free); n > 0 {
		g, h.free = h.free[n-1], h.free[:n-1]
	} else {
		g = &heldGroup{list: make([]accepted, 0, min(id.Size, maxFreeList))}
	}
	g.id = id
	h.link(g)
	return g
}

// adopt takes a group of another hold, which must not be used any more.
func (h *hold) adopt(g *heldGroup) {
	h.link(g)
	h.n += len(g.list)
}

// link adds a group behind the others.
func (h *hold) link(g *heldGroup) {
	g.prev, g.next = h.last, nil
	if h.last != nil {
		h.last.next = g
	} else {
		h.first = g
	}
	h.last, h.groups[g.id.ID] = g, g
}

// end takes a group away.
func (h *hold) end(g *heldGroup) {
	delete(h.groups, g.id.ID)
	if g.prev != nil {
		g.prev.next = g.next
	} else {
		h.first = g.next
	}
	if g.next != nil {
		g.next.prev = g.prev
	} else {
		h.last = g.prev
	}
	clear(g.facts)
	if *g = (heldGroup{list: g.list[:0], seen: g.seen, facts: g.facts[:0]}); len(h.free) < maxFree && cap(g.list) <= maxFreeList {
		h.free = append(h.free, g)
	}
}

// left is what was not taken of a group.
func (g *heldGroup) left() []accepted { return g.list[g.taken:] }

// take takes the first sample that is left of a group, and the group with the last.
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

// putDown gives the memory of a held sample back to the budget.
func (h *hold) putDown(a *accepted, b *budget) {
	h.bytes -= a.bytes
	b.release(a.bytes)
	a.sample, a.bytes = nil, 0
}

// putAllDown is putDown of all that is in memory.
func (h *hold) putAllDown(b *budget) {
	for g := h.first; g != nil; g = g.next {
		for i := range g.left() {
			if a := &g.left()[i]; a.sample != nil {
				h.putDown(a, b)
			}
		}
	}
}

// committed notes that the writer made a commit.
func (h *hold) committed() {
	for g := h.first; g != nil; g = g.next {
		g.commits++
	}
}

// groupOf is the group that a sample belongs to.
func groupOf(s *tokenize.Sample) CommittedGroup {
	return CommittedGroup{ID: s.GroupID, Size: s.GroupSize}
}

// take holds a sample until its group is whole, or writes it where there is nothing to
// wait for.
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
		if g != nil { // its size was raised beyond what is held
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

// writeLate writes the groups that may be held no longer, and sets the timer. It does nothing
// where groups are committed as they become whole.
func (w *writer) writeLate(now time.Time) error {
	if w.d.cfg.CommitGroups {
		return nil
	}
	for g := w.held.first; g != nil; g = w.held.first {
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

// openBytes is how much more a sample takes in open pages, before they are compressed,
// than in the write-ahead log, at most.
const openBytes = 4

// writeGroup writes what is held of a group, by index, into one shard where it fits.
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
		if w.d.cfg.CommitGroups { // in one commit, however large
			continue
		}
		if err := w.commitFull(); err != nil {
			return err
		}
	}
	return w.commitFull()
}

// commitFull commits the open shards when they are full.
func (w *writer) commitFull() error {
	if !w.full() {
		return nil
	}
	return w.commit()
}

// readAgain reads a sample that was put down.
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

// readFrame reads the payload of a sample from the write-ahead log. It is valid until the next
// call.
func (w *writer) readFrame(a *accepted) ([]byte, error) {
	fail := func(err error) ([]byte, error) {
		return nil, &ShardError{Path: a.segment.path, Op: "read", Err: err}
	}
	if w.again != a.segment {
		w.closeAgain()
		f, err := w.d.cfg.FS.Open(a.segment.path)
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

// keepFrame is the largest buffer for frames that a writer keeps from commit to commit.
const keepFrame = 4 << 20

// closeAgain closes the segment that was read again, if one is open.
func (w *writer) closeAgain() {
	if cap(w.buf) > keepFrame {
		w.buf = nil
	}
	if w.again != nil {
		_ = w.file.Close() // it was read only
		w.again, w.file = nil, nil
	}
}

// finish commits all that may be committed: with Config.CommitGroups the groups that are whole,
// else all that is held.
func (w *writer) finish() error {
	parts := !w.d.cfg.CommitGroups || w.d.parts.Load()
	for g := w.held.first; g != nil && parts; g = w.held.first {
		if err := w.writeGroup(g); err != nil {
			return err
		}
	}
	return w.commit()
}

// leave ends the samples that are held and stay in the write-ahead log.
func (w *writer) leave() {
	for g := w.held.first; g != nil; g = g.next {
		for _, a := range g.left() {
			w.d.budget.release(a.bytes)
			a.done(ErrWaiting)
		}
	}
	w.held = hold{}
}
