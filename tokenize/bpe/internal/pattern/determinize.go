package pattern

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// A list holds the steps that a matcher could have reached, in the order in which it would try
// them.
type list struct {
	at   []uint16
	seen []bool
}

func (l *list) clear() {
	l.at = l.at[:0]
	clear(l.seen)
}

// add appends step pc. If pc is a split, add appends the steps to which the split leads instead.
func (l *list) add(insts []inst, pc int) {
	if l.seen[pc] {
		return
	}
	l.seen[pc] = true
	if i := &insts[pc]; i.op == instSplit {
		l.add(insts, i.x)
		l.add(insts, i.y)
		return
	}
	l.at = append(l.at, uint16(pc))
}

// A state is a row of the table under construction. Both slices are indexed by the class of the
// next character. An element of next is the next state, or -1. An element of match is true if a
// match ends before the character.
type state struct {
	next  []int32
	match []bool
}

type determinizer struct {
	insts  []inst
	of     [][4]uint64
	n      int // number of classes
	now    list
	ahead  list
	states []state
	sure   []bool // set by findSure
	lists  [][]uint16
	byKey  map[string]int32
}

// determinize builds the states of the table. It returns false if there are too many states.
func determinize(b *builder, c *classes) (*determinizer, bool) {
	d := &determinizer{insts: b.insts, of: c.of, n: c.n, byKey: map[string]int32{}}
	d.now.seen = make([]bool, len(b.insts))
	d.ahead.seen = make([]bool, len(b.insts))
	d.ahead.add(d.insts, 0)
	d.state()
	work := 0
	for i := 0; i < len(d.states); i++ {
		if work += (d.n + 1) * len(d.lists[i]); work > maxWork || len(d.states) > maxStates {
			return nil, false
		}
		for class := range d.n + 1 {
			if d.step(d.lists[i], class) {
				d.states[i].match[class] = true
			}
			d.states[i].next[class] = d.state()
		}
	}
	d.findSure()
	return d, true
}

// state returns the number of the state for the list d.ahead, or -1 if the list is empty.
func (d *determinizer) state() int32 {
	if len(d.ahead.at) == 0 {
		return -1
	}
	key := make([]byte, 0, 2*len(d.ahead.at))
	for _, pc := range d.ahead.at {
		key = binary.LittleEndian.AppendUint16(key, pc)
	}
	id, ok := d.byKey[string(key)]
	if !ok {
		id = int32(len(d.states))
		d.byKey[string(key)] = id
		d.lists = append(d.lists, slices.Clone(d.ahead.at))
		d.states = append(d.states, state{make([]int32, d.n+1), make([]bool, d.n+1)})
	}
	return id
}

// step sets d.ahead to the list of steps after a character of the given class. It reports whether a
// match ends before the character. Class d.n stands for the end of the text.
func (d *determinizer) step(from []uint16, class int) bool {
	d.ahead.clear()
	d.now.clear()
	return slices.ContainsFunc(from, func(pc uint16) bool { return d.stepFrom(int(pc), class) })
}

func (d *determinizer) stepFrom(pc, class int) (matched bool) {
	if d.now.seen[pc] {
		return false
	}
	d.now.seen[pc] = true
	i := &d.insts[pc]
	switch {
	case i.op == instMatch:
		return true
	case i.op == instSplit:
		return d.stepFrom(i.x, class) || d.stepFrom(i.y, class)
	case class == d.n && !i.end, class < d.n && d.of[i.set][class>>6]>>(class&63)&1 == 0:
		return false
	case i.look:
		return d.stepFrom(i.x, class)
	}
	d.ahead.add(d.insts, i.x)
	return false
}

// minimize merges equivalent states and returns the remaining states. The first state stays first.
func (d *determinizer) minimize() []state {
	group := make([]int32, len(d.states))
	for n := 1; ; {
		byKey := map[string]int32{}
		next := make([]int32, len(d.states))
		for i, s := range d.states {
			key := binary.LittleEndian.AppendUint32(nil, uint32(group[i]))
			for c, to := range s.next {
				g := int32(-1)
				if to >= 0 {
					g = group[to]
				}
				g <<= 1
				if s.match[c] {
					g |= 1
				}
				key = binary.LittleEndian.AppendUint32(key, uint32(g))
			}
			id, ok := byKey[string(key)]
			if !ok {
				id = int32(len(byKey))
				byKey[string(key)] = id
			}
			next[i] = id
		}
		group = next
		if len(byKey) == n {
			break
		}
		n = len(byKey)
	}
	out := make([]state, 0, len(d.states))
	for i, s := range d.states {
		if int(group[i]) != len(out) {
			continue
		}
		for c, to := range s.next {
			if to >= 0 {
				s.next[c] = group[to]
			}
		}
		out = append(out, s)
	}
	return out
}

// findSure finds the states from which every text leads to a match.
func (d *determinizer) findSure() {
	d.sure = make([]bool, len(d.states))
	for i := range d.sure {
		d.sure[i] = true
	}
	for changed := true; changed; {
		changed = false
		for i, s := range d.states {
			for c, to := range s.next {
				if d.sure[i] && !s.match[c] && (to < 0 || !d.sure[to]) {
					d.sure[i], changed = false, true
				}
			}
		}
	}
}

// forget unmarks each match that a longer match is certain to replace.
func (d *determinizer) forget() {
	for _, s := range d.states {
		for c, to := range s.next {
			if to >= 0 && d.sure[to] {
				s.match[c] = false
			}
		}
	}
}

func (p *Pattern) fill(states []state, n int) {
	shift := bits.Len(uint(n)) // n+1 entries
	p.table = make([]uint32, len(states)<<shift)
	for i, s := range states {
		row := p.table[i<<shift:]
		for c, to := range s.next {
			t := special | dead
			if to >= 0 {
				t = uint32(to) << shift
			}
			if s.match[c] {
				t |= special | match
			}
			row[c] = t
		}
	}
	for c, to := range states[0].next[:n] {
		if to >= 0 {
			p.begins[c] = 1
		}
	}
	for b := range p.first {
		p.first[b] = 1
		if b < 0x80 {
			p.first[b] = p.begins[p.ascii[b]]
		}
	}
}

func (d *determinizer) covers() bool {
	for _, to := range d.states[0].next[:d.n] {
		if to < 0 || !d.sure[to] {
			return false
		}
	}
	return true
}
