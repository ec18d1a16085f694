package pattern

import (
	"fmt"
	"reflect"
	"unicode/utf8"
)

// Limits on a pattern. The largest known patterns have 30 classes of characters and 20 states.
const (
	maxExpr    = 4096
	maxDepth   = 50
	maxSets    = 64
	maxClasses = 254
	maxProgram = 2000
	maxStates  = 500
	maxWork    = 20_000_000 // steps visited while building the states
)

// Compile compiles a regular expression to a Pattern. Every error is a *SyntaxError.
func Compile(expr string) (*Pattern, error) {
	if len(expr) > maxExpr {
		return nil, &SyntaxError{maxExpr, "pattern of more than 4096 bytes"}
	}
	if !utf8.ValidString(expr) {
		return nil, &SyntaxError{0, "pattern is not valid UTF-8"}
	}
	p := &parser{s: expr}
	n, err := p.alternatives()
	if err != nil {
		return nil, err
	}
	if p.i < len(expr) {
		return nil, p.errorf(p.i, ") without an opening (")
	}
	return compile(n)
}

// Literal returns a Pattern that matches only the given text, which must not be empty. Every error
// is a *SyntaxError.
func Literal(text string) (*Pattern, error) {
	if len(text) > maxExpr {
		return nil, &SyntaxError{maxExpr, "text of more than 4096 bytes"}
	}
	n := &node{op: opConcat}
	for _, r := range text {
		n.subs = append(n.subs, &node{op: opSet, set: runes(r, r)})
	}
	return compile(n)
}

func compile(n *node) (*Pattern, error) {
	refuse := func(format string, args ...any) (*Pattern, error) {
		return nil, &SyntaxError{0, fmt.Sprintf(format, args...)}
	}
	if n.nullable() {
		return refuse("pattern matches the empty string")
	}
	b := builder{}
	ok := b.program(n)
	b.emit(inst{op: instMatch})
	if !ok {
		return refuse("pattern is too large: more than %d steps", maxProgram)
	}
	if len(b.sets) > maxSets {
		return refuse("pattern is too large: more than %d different classes", maxSets)
	}
	c, ok := classify(b.sets)
	if !ok {
		return refuse("pattern is too large: more than %d kinds of characters", maxClasses)
	}
	d, ok := determinize(&b, c)
	if !ok {
		return refuse("pattern is too large: more than %d states", maxStates)
	}
	if !d.linear() {
		return refuse("pattern could take quadratic time")
	}
	p := &Pattern{index: c.index, block: c.block, atEnd: uint32(c.n), covers: d.covers()}
	copy(p.ascii[:0x80], c.block[c.index[0]][:0x80])
	d.forget()
	p.fill(d.minimize(), d.n)
	return p, nil
}

// An inst is one step of a backtracking matcher.
type inst struct {
	op   instOp
	look bool // for instSet: true for a lookahead, which does not consume the character
	end  bool // for a lookahead: true if it also succeeds at the end of the text
	set  int
	x, y int // x is the next step, and y is the step to try if x fails
}

type instOp uint8

const (
	instSet instOp = iota
	instSplit
	instMatch
)

type builder struct {
	insts []inst
	sets  []*set
}

func (b *builder) emit(i inst) int {
	b.insts = append(b.insts, i)
	return len(b.insts) - 1
}

// program appends the steps for n to b.insts. It returns false if there are too many steps.
func (b *builder) program(n *node) bool {
	if len(b.insts) > maxProgram {
		return false
	}
	switch n.op {
	case opSet, opLook:
		at := b.emit(inst{op: instSet, set: b.setOf(n.set), look: n.op == opLook, end: n.atEnd})
		b.insts[at].x = at + 1
	case opConcat:
		for _, s := range n.subs {
			if !b.program(s) {
				return false
			}
		}
	case opAlternate:
		var ends []int
		for k, s := range n.subs {
			split := -1
			if k < len(n.subs)-1 {
				split = b.emit(inst{op: instSplit})
				b.insts[split].x = split + 1
			}
			if !b.program(s) {
				return false
			}
			if split >= 0 {
				ends = append(ends, b.emit(inst{op: instSplit}))
				b.insts[split].y = len(b.insts)
			}
		}
		for _, e := range ends {
			b.insts[e].x, b.insts[e].y = len(b.insts), len(b.insts)
		}
	case opRepeat:
		return b.repeat(n)
	}
	return true
}

func (b *builder) repeat(n *node) bool {
	at := 0
	for range n.min {
		at = len(b.insts)
		if !b.program(n.subs[0]) {
			return false
		}
	}
	if n.max < 0 {
		if n.min > 0 { // x{m,} loops back to the last copy of x
			split := b.emit(inst{op: instSplit})
			b.insts[split].x, b.insts[split].y = at, split+1
			return true
		}
		split := b.emit(inst{op: instSplit})
		if !b.program(n.subs[0]) {
			return false
		}
		back := b.emit(inst{op: instSplit})
		b.insts[back].x, b.insts[back].y = split, split
		b.insts[split].x, b.insts[split].y = split+1, back+1
		return true
	}
	var splits []int
	for range n.max - n.min {
		split := b.emit(inst{op: instSplit})
		b.insts[split].x = split + 1
		splits = append(splits, split)
		if !b.program(n.subs[0]) {
			return false
		}
	}
	for _, s := range splits {
		b.insts[s].y = len(b.insts)
	}
	return true
}

// setOf returns the index of a set in b.sets. It adds the set if necessary, up to maxSets+1 sets.
func (b *builder) setOf(s *set) int {
	if len(b.sets) > maxSets {
		return maxSets
	}
	for k, old := range b.sets {
		if reflect.DeepEqual(s, old) {
			return k
		}
	}
	b.sets = append(b.sets, s)
	return len(b.sets) - 1
}
