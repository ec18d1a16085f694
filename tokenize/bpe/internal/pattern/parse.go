package pattern

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

type node struct {
	op       op
	set      *set    // for opSet and opLook
	subs     []*node // for opConcat, opAlternate and opRepeat
	min, max int     // for opRepeat; max is -1 if there is no maximum
	atEnd    bool    // for opLook: true if the lookahead succeeds at the end of the text
	fold     bool    // for opSet: true inside (?i: )
}

type op uint8

const (
	opSet       op = iota // one character from a set
	opConcat              // subs in sequence
	opAlternate           // the first of subs that leads to a match
	opRepeat              // subs[0], as often as possible
	opLook                // the next character is in a set, or the text ends
)

// nullable reports whether n matches the empty string.
func (n *node) nullable() bool {
	switch n.op {
	case opSet:
		return false
	case opConcat:
		return !slices.ContainsFunc(n.subs, func(s *node) bool { return !s.nullable() })
	case opAlternate:
		return slices.ContainsFunc(n.subs, (*node).nullable)
	case opRepeat:
		return n.min == 0 || n.subs[0].nullable()
	default:
		return true
	}
}

// A parser parses a pattern. It rejects constructs that could have a different meaning in
// Oniguruma.
type parser struct {
	s    string
	i    int
	fold bool // true inside (?i: )
	deep int
}

func (p *parser) errorf(at int, format string, args ...any) error {
	return &SyntaxError{at, fmt.Sprintf(format, args...)}
}

// skipPrefix reports whether the rest of the pattern begins with prefix, and if so, skips it.
func (p *parser) skipPrefix(prefix string) bool {
	if strings.HasPrefix(p.s[p.i:], prefix) {
		p.i += len(prefix)
		return true
	}
	return false
}

func (p *parser) peek() byte {
	if p.i < len(p.s) {
		return p.s[p.i]
	}
	return 0
}

// alternatives parses alternatives up to the end of the pattern or a closing parenthesis.
func (p *parser) alternatives() (*node, error) {
	if p.deep++; p.deep > maxDepth {
		return nil, p.errorf(p.i, "groups nested more than %d levels deep", maxDepth)
	}
	defer func() { p.deep-- }()
	n := &node{op: opAlternate}
	for {
		s, err := p.sequence()
		if err != nil {
			return nil, err
		}
		n.subs = append(n.subs, s)
		if !p.skipPrefix("|") {
			break
		}
	}
	if len(n.subs) == 1 {
		return n.subs[0], nil
	}
	return n, nil
}

func (p *parser) sequence() (*node, error) {
	n := &node{op: opConcat}
	for p.i < len(p.s) && p.peek() != '|' && p.peek() != ')' {
		at := p.i
		a, err := p.atom()
		if err != nil {
			return nil, err
		}
		if a, err = p.repeat(a); err != nil {
			return nil, err
		}
		if k := len(n.subs); k > 0 && foldsTogether(n.subs[k-1], a) {
			return nil, p.errorf(at, "case-insensitive letters that fold to one character with the previous letters")
		}
		n.subs = append(n.subs, a)
	}
	if len(n.subs) == 1 {
		return n.subs[0], nil
	}
	return n, nil
}

// Two letters such as ss are equivalent to one character such as ß if case is ignored. foldsTogether
// reports whether a can match the first of two such letters at its end, and b the second at its
// start. In that case, Oniguruma also matches the one character.
func foldsTogether(a, b *node) bool {
	for _, pair := range [...]string{"ss", "st", "ff", "fi", "fl"} {
		if a.edge(pair[0], true) && b.edge(pair[1], false) {
			return true
		}
	}
	return false
}

// edge reports whether n can begin with the given letter or, if end is true, whether n can end with
// it. Case is ignored.
func (n *node) edge(letter byte, end bool) bool {
	switch n.op {
	case opSet:
		return n.fold && n.set.has(kindOf(rune(letter)), rune(letter))
	case opAlternate, opRepeat:
		return slices.ContainsFunc(n.subs, func(s *node) bool { return s.edge(letter, end) })
	case opConcat:
		subs := n.subs
		for len(subs) > 0 {
			k := 0
			if end {
				k = len(subs) - 1
			}
			if subs[k].edge(letter, end) {
				return true
			}
			if !subs[k].nullable() {
				return false
			}
			subs = slices.Delete(slices.Clone(subs), k, k+1)
		}
	default:
	}
	return false
}

// repeat parses the repetitions after an atom: ? * + {m} {m,n} {m,}, and ?+ *+ ++.
func (p *parser) repeat(n *node) (*node, error) {
	for p.i < len(p.s) {
		at := p.i
		lo, hi, interval := 0, -1, false
		switch p.peek() {
		case '?':
			hi = 1
		case '*':
		case '+':
			lo = 1
		case '{':
			interval = true
		default:
			return n, nil
		}
		if n.op == opLook {
			return nil, p.errorf(at, "repeated lookahead")
		}
		if interval {
			var err error
			if lo, hi, err = p.interval(); err != nil {
				return nil, err
			}
		} else {
			p.i++
		}
		if p.peek() == '?' {
			return nil, p.errorf(at, "lazy repetition %s", p.s[at:p.i+1])
		}
		if n.nullable() {
			return nil, p.errorf(at, "repetition of a part that can be empty")
		}
		if hi != 1 && foldsTogether(n, n) {
			return nil, p.errorf(at, "a case-insensitive repetition of letters that fold to a single character")
		}
		r := &node{op: opRepeat, subs: []*node{n}, min: lo, max: hi}
		if !interval && p.skipPrefix("+") {
			// A possessive repetition of one set ends only before a character outside the set.
			if n.op != opSet {
				return nil, p.errorf(at, "possessive repetition %s of more than one character", p.s[at:p.i])
			}
			end := &node{op: opLook, set: n.set.negate(), atEnd: true}
			if hi == 1 {
				r = &node{op: opAlternate, subs: []*node{n, end}}
			} else {
				r = &node{op: opConcat, subs: []*node{r, end}}
			}
		}
		n = r
		// {1,3}+ is not possessive: it repeats {1,3}. Other repetitions of a repetition are
		// rejected, because they are rare.
		if next := p.peek(); !interval && (next == '?' || next == '*' || next == '+' || next == '{') {
			return nil, p.errorf(p.i, "%c after a repetition", next)
		}
	}
	return n, nil
}

// interval parses {m}, {m,} or {m,n}.
func (p *parser) interval() (lo, hi int, err error) {
	at := p.i
	body, _, ok := strings.Cut(p.s[p.i+1:], "}")
	first, second, comma := strings.Cut(body, ",")
	lo, err1 := strconv.Atoi(first)
	hi = lo
	var err2 error
	if comma {
		if hi = -1; second != "" {
			hi, err2 = strconv.Atoi(second)
		}
	}
	if !ok || err1 != nil || err2 != nil || lo < 0 || hi >= 0 && hi < lo || hi == 0 || max(lo, hi) > 1000 ||
		strings.ContainsAny(body, "+-") {
		return 0, 0, p.errorf(at, "repetition {%.20s", body)
	}
	p.i += len(body) + 2
	return lo, hi, nil
}

// atom parses a character, a set, a group or a lookahead.
func (p *parser) atom() (*node, error) {
	at := p.i
	switch c := p.peek(); c {
	case '(':
		return p.group()
	case '[':
		s, err := p.class()
		return &node{op: opSet, set: s, fold: p.fold}, err
	case '.':
		p.i++
		return &node{op: opSet, set: runes('\n', '\n').negate()}, nil
	case '$':
		p.i++
		return &node{op: opLook, set: runes('\n', '\n'), atEnd: true}, nil
	case '\\':
		if p.skipPrefix(`\z`) {
			return &node{op: opLook, set: &set{}, atEnd: true}, nil
		}
		s, _, err := p.escape()
		return &node{op: opSet, set: s, fold: p.fold}, err
	case '^', '?', '*', '+', '{', '}', ']':
		return nil, p.errorf(at, "unexpected %c", c)
	}
	r, size := utf8.DecodeRuneInString(p.s[p.i:])
	p.i += size
	s, err := p.literal(r, at)
	return &node{op: opSet, set: s, fold: p.fold}, err
}

func isLetter(r rune) bool { return 'a' <= r|0x20 && r|0x20 <= 'z' }

// literal returns the set that contains r and, inside (?i: ), also the characters that fold to r.
func (p *parser) literal(r rune, at int) (*set, error) {
	s := runes(r, r)
	if !p.fold {
		return s, nil
	}
	switch {
	case isLetter(r):
		s = union(runes(r|0x20, r|0x20), runes(r&^0x20, r&^0x20))
		switch r | 0x20 {
		case 's':
			s.add(0x17F, 0x17F)
		case 'k':
			s.add(0x212A, 0x212A)
		}
	case r >= 0x80 && !isPunctuation(r):
		return nil, p.errorf(at, "case-insensitive %q", r)
	}
	return s, nil
}

// group parses ( ), (?: ), (?i: ), (?= ) or (?! ).
func (p *parser) group() (*node, error) {
	at := p.i
	fold := p.fold
	look := false
	negative := false
	switch {
	case p.skipPrefix("(?:"):
	case p.skipPrefix("(?i:"):
		p.fold = true
	case p.skipPrefix("(?="):
		look = true
	case p.skipPrefix("(?!"):
		look, negative = true, true
	case p.skipPrefix("(?"):
		return nil, p.errorf(at, "group %.6s", p.s[at:])
	default:
		p.skipPrefix("(")
	}
	n, err := p.alternatives()
	if err != nil {
		return nil, err
	}
	if !p.skipPrefix(")") {
		return nil, p.errorf(at, "group without a closing )")
	}
	p.fold = fold
	if !look {
		return n, nil
	}
	if n.op != opSet {
		return nil, p.errorf(at, "lookahead of more than one character")
	}
	if negative {
		return &node{op: opLook, set: n.set.negate(), atEnd: true}, nil
	}
	return &node{op: opLook, set: n.set}, nil
}
