package protocol

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// This file is a model of the protocol of a log in a bucket: two workers, which claim it one after the
// other, a cleaner, and two samples. TestProtocol visits every state that they can reach within the
// bounds below. TestProtocolNeedsEachRule leaves out one rule at a time, and prints the shortest way to
// a broken state.

// A rule of the protocol.
type rule uint8

const (
	everyRule     rule = iota
	namesStay          // entry names are never deleted or reused
	takenFences        // a taken name ends the worker; otherwise it takes the next name
	sameBytes          // after a lost answer, the worker repeats the bytes under the same name
	spoolFiltered      // after a claim, the samples in the log are dropped from the spool
	claimFirst         // recovery claims before it deletes
	lowerOnly          // recovery deletes only shards of lower epochs
	uploadFirst        // a shard is complete before its entry is written
	putIfAbsent        // an entry never replaces another
	sealComplete       // the log is sealed only if all samples are committed
	replacedOnly       // clean deletes only shards that no valid entry names
	cleanAtEnd         // clean deletes only after the end of the log
	rules
)

func (r rule) String() string {
	return [rules]string{
		"", "names stay", "a taken name fences", "the same bytes after a lost answer", "the spool is filtered", "claim first",
		"only lower epochs", "upload first", "put if absent", "seal when complete", "only replaced shards", "clean after the end",
	}[r]
}

// With these bounds there are two million states, up to 33 steps from the first.
const (
	maxEntries = 9
	maxShards  = 7
	maxClaims  = 4
	samples    = 2
	all        = 1<<samples - 1
)

type kind uint8

const (
	none kind = iota
	claims
	commits
	merges
	seals
)

// An entry is fixed when its bytes are written.
type modelEntry struct {
	kind         kind
	epoch, claim uint8 // of the writer
	id           uint8 // a nonce: the number of the put
	keys         uint8 // samples of a commit or merge, as bits
	shard        uint8 // from 1
	replaces     uint16
}

type modelShard struct {
	epoch, keys uint8
	there       bool
}

// A modelWorker is a process with a local spool, which survives its death.
type modelWorker struct {
	spool        uint8 // finished samples
	next         uint8 // number of the first entry that the worker has not read; 0: it has read nothing
	epoch, claim uint8 // claim is 0 until the worker owns the log
	put          modelEntry
}

type modelState struct {
	log     [maxEntries]modelEntry // the kind is none at the end, or if the name was freed
	n       uint8                  // the highest number
	shards  [maxShards]modelShard
	workers [2]modelWorker
	ids     uint8
	told    uint8 // samples that a worker knows to be committed
}

// A step is a state that follows another, and what happened.
type step struct {
	what string
	to   modelState
}

// A model is the protocol without one of the rules.
type model struct{ without rule }

func (m model) keeps(r rule) bool { return m.without != r }

// gone returns the numbers of the entries below n that merges replaced, as bits.
func (s *modelState) gone(n uint8) (gone uint16) {
	for _, e := range s.log[:n] {
		gone |= e.replaces
	}
	return gone
}

// valid yields the entries up to n that no merge replaced.
func (s *modelState) valid(n uint8) func(func(int, *modelEntry) bool) {
	return func(yield func(int, *modelEntry) bool) {
		gone := s.gone(n)
		for i := range s.log[:n] {
			if e := &s.log[i]; e.kind != none && gone>>i&1 == 0 && !yield(i, e) {
				return
			}
		}
	}
}

// read returns the samples and the highest epoch in the first n entries.
func (s *modelState) read(n uint8) (keys, epoch uint8, sealed bool) {
	for _, e := range s.valid(n) {
		keys |= e.keys
		epoch = max(epoch, e.epoch)
		sealed = sealed || e.kind == seals
	}
	return keys, epoch, sealed
}

// broken says which promise the state breaks, or returns "".
func (s *modelState) broken() string {
	var keys, epoch uint8
	complete := true
	for _, e := range s.valid(s.n) {
		switch {
		case keys&e.keys != 0:
			return "a sample is in the dataset twice"
		case e.shard > 0 && !s.shards[e.shard-1].there:
			return "a shard is missing that an entry names"
		case e.epoch < epoch:
			return "a worker wrote an entry after it had lost the log"
		}
		keys, epoch = keys|e.keys, e.epoch
		complete = complete && e.kind != seals || keys == all
	}
	switch {
	case !complete:
		return "the log is sealed, but a sample is missing"
	case s.told&^keys != 0:
		return "a sample that was committed is no longer in the dataset"
	}
	return ""
}

// steps returns the states that can follow s.
func (m model) steps(s *modelState) (out []step) {
	add := func(what string, change func(*modelState)) {
		to := *s
		change(&to)
		to.simplify()
		out = append(out, step{what, to})
	}
	for i := range s.workers {
		m.workerSteps(s, i, func(what string, change func(*modelState, *modelWorker)) {
			add(fmt.Sprintf("worker %d %s", i+1, what), func(to *modelState) { change(to, &to.workers[i]) })
		})
	}
	_, _, sealed := s.read(s.n)
	if unnamed := m.unnamed(s); unnamed != 0 && (sealed || !m.keeps(cleanAtEnd)) {
		add("clean deletes shards", func(to *modelState) { to.delete(unnamed) })
	}
	return out
}

// simplify makes states equal that differ only in the order of the workers or in the nonces.
func (s *modelState) simplify() {
	a, b := &s.workers[0], &s.workers[1]
	if b.less(a) {
		*a, *b = *b, *a
	}
	var known [64]uint8
	s.ids = 0
	rename := func(id *uint8) {
		if *id > 0 && known[*id] == 0 {
			s.ids++
			known[*id] = s.ids
		}
		*id = known[*id]
	}
	for i := range s.log[:s.n] {
		rename(&s.log[i].id)
	}
	rename(&a.put.id)
	rename(&b.put.id)
}

func (w *modelWorker) less(v *modelWorker) bool {
	return cmp.Or(cmp.Compare(w.next, v.next), cmp.Compare(w.epoch, v.epoch), cmp.Compare(w.claim, v.claim), cmp.Compare(w.spool, v.spool),
		cmp.Compare(w.put.kind, v.put.kind), cmp.Compare(w.put.id, v.put.id)) < 0
}

// unnamed returns the shards that a cleaner deletes, as bits.
func (m model) unnamed(s *modelState) (out uint16) {
	for i, shard := range s.shards {
		if shard.there {
			out |= 1 << i
		}
	}
	for _, e := range s.valid(s.n) {
		if e.shard > 0 && (m.keeps(replacedOnly) || e.kind != merges) {
			out &^= 1 << (e.shard - 1)
		}
	}
	return out
}

func (s *modelState) delete(shards uint16) {
	for i := range s.shards {
		if shards>>i&1 != 0 {
			s.shards[i].there = false
		}
	}
}

func (s *modelState) upload(epoch, keys uint8, there bool) (shard uint8) {
	for i := range s.shards {
		if s.shards[i].epoch == 0 {
			s.shards[i] = modelShard{epoch, keys, there}
			return uint8(i) + 1
		}
	}
	return 0
}

// workerSteps adds what the worker with index i can do.
func (m model) workerSteps(s *modelState, i int, add func(string, func(*modelState, *modelWorker))) {
	w := &s.workers[i]
	known, _, sealed := s.read(max(w.next, 1) - 1)
	full := s.shards[maxShards-1].epoch > 0
	switch {
	case w.next == 0:
		if _, epoch, sealed := s.read(s.n); s.n < maxEntries && epoch < maxClaims && !sealed {
			add("reads the log", func(to *modelState, w *modelWorker) {
				to.ids++
				w.next, w.epoch = s.n+1, epoch+1
				w.put = modelEntry{kind: claims, epoch: w.epoch, id: to.ids}
				if !m.keeps(claimFirst) {
					to.delete(m.unnamed(s))
				}
			})
		}
		return
	case w.put.kind != none:
		m.putSteps(s, w, add)
	case sealed || w.next > maxEntries:
	default:
		for x := uint8(1); x <= all; x <<= 1 {
			if (known|w.spool)&x == 0 {
				add(fmt.Sprintf("finishes sample %d", bits.Len8(x)), func(_ *modelState, w *modelWorker) { w.spool |= x })
			}
		}
		if w.spool != 0 && !full {
			add("uploads its spool", func(to *modelState, w *modelWorker) {
				to.ids++
				w.put = modelEntry{commits, w.epoch, w.claim, to.ids, w.spool, to.upload(w.epoch, w.spool, m.keeps(uploadFirst)), 0}
			})
		}
		if from, keys := m.mergeable(s, w.next-1); bits.OnesCount16(from) > 1 && !full {
			add("uploads a merge", func(to *modelState, w *modelWorker) {
				to.ids++
				w.put = modelEntry{merges, w.epoch, w.claim, to.ids, keys, to.upload(w.epoch, keys, true), from}
			})
		}
		if known == all || !m.keeps(sealComplete) && known|w.spool == all {
			add("seals", func(to *modelState, w *modelWorker) {
				to.ids++
				w.put = modelEntry{kind: seals, epoch: w.epoch, claim: w.claim, id: to.ids}
			})
		}
	}
	add("is killed", func(_ *modelState, w *modelWorker) { *w = modelWorker{spool: w.spool} })
	if w.spool != 0 {
		add("is lost with its spool", func(_ *modelState, w *modelWorker) { *w = modelWorker{} })
	}
}

// mergeable returns the commits among the first n entries that a merge would replace, and their samples.
func (m model) mergeable(s *modelState, n uint8) (from uint16, keys uint8) {
	for i, e := range s.valid(n) {
		if e.kind == commits || e.kind == merges || e.kind == claims && !m.keeps(namesStay) {
			from, keys = from|1<<i, keys|e.keys
		}
	}
	if keys == 0 {
		return 0, 0
	}
	return from, keys
}

// putSteps adds the results of the put of w. Its answer can be lost.
func (m model) putSteps(s *modelState, w *modelWorker, add func(string, func(*modelState, *modelWorker))) {
	at, what := w.next-1, [...]string{claims: "claim", commits: "commit", merges: "merge", seals: "sealed entry"}[w.put.kind]
	if at >= maxEntries {
		return
	}
	taken := &s.log[at]
	switch {
	case taken.kind == none || !m.keeps(putIfAbsent) && taken.id != w.put.id:
		add("puts its "+what, func(to *modelState, w *modelWorker) {
			to.log[at], to.n = w.put, max(to.n, w.next)
			m.written(to, w)
		})
		if w.put.kind == commits || w.put.kind == claims {
			add("puts its "+what+", and the answer is lost", func(to *modelState, w *modelWorker) {
				to.log[at], to.n = w.put, max(to.n, w.next)
				if !m.keeps(sameBytes) {
					w.next++
					to.ids++
					w.put.id = to.ids
				}
			})
		}
	case taken.id == w.put.id:
		add("finds its own "+what, func(to *modelState, w *modelWorker) { m.written(to, w) })
	case m.keeps(takenFences):
		add("is fenced", func(_ *modelState, w *modelWorker) { *w = modelWorker{spool: w.spool} })
	default:
		add("finds the name taken, and takes the next one", func(_ *modelState, w *modelWorker) { w.next++ })
	}
}

// written is what a worker does when its put was successful.
func (m model) written(s *modelState, w *modelWorker) {
	e := w.put
	w.next, w.put = w.next+1, modelEntry{}
	switch e.kind {
	case claims:
		w.claim = w.next - 1
		known, _, _ := s.read(w.claim)
		if m.keeps(spoolFiltered) {
			w.spool &^= known
		}
		if m.keeps(claimFirst) { // recovery sweeps
			for i, shard := range s.shards {
				if m.unnamedAt(s, w.claim)>>i&1 != 0 && (shard.epoch < w.epoch || !m.keeps(lowerOnly)) {
					s.shards[i].there = false
				}
			}
		}
	case commits:
		if !m.keeps(uploadFirst) {
			s.shards[e.shard-1].there = true
		}
		s.told |= e.keys
		w.spool &^= e.keys
	case merges:
		if !m.keeps(namesStay) {
			for i := range s.log {
				if e.replaces>>i&1 != 0 {
					s.log[i] = modelEntry{}
				}
			}
		}
	}
}

// unnamedAt returns the shards that the first n entries do not name, replaced or not.
func (m model) unnamedAt(s *modelState, n uint8) (out uint16) {
	for i, shard := range s.shards {
		if shard.there {
			out |= 1 << i
		}
	}
	for _, e := range s.log[:n] {
		if e.shard > 0 {
			out &^= 1 << (e.shard - 1)
		}
	}
	return out
}

// search visits the states in the order of the number of steps. It returns the steps to the first
// state that breaks the protocol.
func (m model) search() (bad string, path []string, states int) {
	// A node says which of the steps from an earlier node led to it.
	type node struct {
		from int32
		step uint8
	}
	nodes, seen := []node{{}}, map[uint64]struct{}{}
	seed := maphash.MakeSeed()
	for level := []modelState{{}}; len(level) > 0; {
		from := len(nodes) - len(level)
		var following []modelState
		for i := range level {
			for step, next := range m.steps(&level[i]) {
				sum := maphash.Comparable(seed, next.to)
				if _, ok := seen[sum]; ok {
					continue
				}
				seen[sum] = struct{}{}
				nodes, following = append(nodes, node{int32(from + i), uint8(step)}), append(following, next.to)
				if bad = next.to.broken(); bad != "" {
					for at := len(nodes) - 1; at > 0; at = int(nodes[at].from) {
						path = append(path, fmt.Sprint(nodes[at].step))
					}
					slices.Reverse(path)
					m.describe(path)
					return bad, path, len(nodes)
				}
			}
		}
		level = following
	}
	return "", nil, len(nodes)
}

// describe replaces the numbers of the steps with what happens.
func (m model) describe(path []string) {
	var s modelState
	for i := range path {
		n, _ := strconv.Atoi(path[i])
		next := m.steps(&s)[n]
		path[i], s = next.what, next.to
	}
}

func TestProtocol(t *testing.T) {
	t.Parallel()
	bad, path, states := model{}.search()
	t.Logf("%d states", states)
	if bad != "" {
		t.Errorf("%s:\n\t%s", bad, strings.Join(path, "\n\t"))
	}
}

func TestProtocolNeedsEachRule(t *testing.T) {
	t.Parallel()
	for r := namesStay; r < rules; r++ {
		bad, path, states := model{without: r}.search()
		if bad == "" {
			t.Errorf("without the rule %q, nothing breaks in %d states", r, states)
		}
		t.Logf("without the rule %q, %s after %d steps:\n\t%s", r, bad, len(path), strings.Join(path, "\n\t"))
	}
}
