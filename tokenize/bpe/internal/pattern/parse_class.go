package pattern

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// class parses [ ] with ranges, escapes, nested classes and &&.
func (p *parser) class() (*set, error) {
	at := p.i
	if p.deep++; p.deep > maxDepth {
		return nil, p.errorf(at, "classes nested more than %d levels deep", maxDepth)
	}
	defer func() { p.deep-- }()
	p.i++
	negated := p.skipPrefix("^")
	if p.peek() == ']' {
		return nil, p.errorf(at, "] as the first character of a class")
	}
	var and []*set
	in := &set{}
	empty := true
	for {
		switch {
		case p.i >= len(p.s):
			return nil, p.errorf(at, "class without a closing ]")
		case p.skipPrefix("]"):
			if empty {
				return nil, p.errorf(at, "&& with an empty operand")
			}
			if len(and) > 0 {
				in = &set{and: append(and, in)}
			}
			if negated {
				return in.negate(), nil
			}
			return in, nil
		case strings.HasPrefix(p.s[p.i:], "&&"):
			if empty {
				return nil, p.errorf(p.i, "&& with an empty operand")
			}
			if p.i += 2; p.peek() == '&' {
				return nil, p.errorf(p.i, "& after &&")
			}
			and = append(and, in)
			in, empty = &set{}, true
			continue
		}
		item, err := p.classItem()
		if err != nil {
			return nil, err
		}
		in.sets = append(in.sets, item)
		empty = false
	}
}

// classItem parses one item of a class: a character, a range, an escape or a nested class.
func (p *parser) classItem() (*set, error) {
	at := p.i
	if p.peek() == '[' {
		if strings.HasPrefix(p.s[p.i:], "[:") {
			return nil, p.errorf(at, "POSIX class %.10s", p.s[at:])
		}
		return p.class()
	}
	s, r, err := p.classChar()
	if err != nil {
		return nil, err
	}
	if p.peek() != '-' || strings.HasPrefix(p.s[p.i:], "-]") {
		if r >= 0 {
			return p.literal(r, at)
		}
		return s, nil
	}
	p.i++
	_, to, err := p.classChar()
	switch {
	case err != nil:
		return nil, err
	case r < 0 || to < r || p.s[at] == '-':
		return nil, p.errorf(at, "range %.20s", p.s[at:p.i])
	case p.fold:
		return nil, p.errorf(at, "case-insensitive range %.20s", p.s[at:p.i])
	case p.peek() == '-' && !strings.HasPrefix(p.s[p.i:], "-]"):
		return nil, p.errorf(p.i, "- after a range")
	}
	return runes(r, to), nil
}

// classChar parses a character r in a class, or an escape that stands for a set. For a set, r is
// -1.
func (p *parser) classChar() (s *set, r rune, err error) {
	at := p.i
	switch p.peek() {
	case '\\':
		return p.escape()
	case '[', 0:
		return nil, 0, p.errorf(at, "range without an end")
	}
	r, size := utf8.DecodeRuneInString(p.s[p.i:])
	p.i += size
	return nil, r, nil
}

// escape parses an escape sequence. It returns a set, or a character r.
func (p *parser) escape() (s *set, r rune, err error) {
	at := p.i
	p.i++
	c := p.peek()
	p.i++
	switch c {
	case 's', 'S', 'd', 'D':
		s = spaces()
		if c|0x20 == 'd' {
			s, _ = category("Nd")
		}
		if c < 'a' {
			s = s.negate()
		}
	case 'p', 'P':
		s, err = p.property(at, c == 'P')
	case 'n':
		r = '\n'
	case 'r':
		r = '\r'
	case 't':
		r = '\t'
	case 'f':
		r = '\f'
	case 'v':
		r = '\v'
	case 'u':
		r, err = p.hex(at, 4, 4)
	case 'x':
		if p.skipPrefix("{") {
			r, err = p.hex(at, 1, 6)
			if err == nil && !p.skipPrefix("}") {
				err = p.errorf(at, "escape %.10s", p.s[at:])
			}
		} else if r, err = p.hex(at, 2, 2); r >= 0x80 {
			err = p.errorf(at, "escape %.4s of a single byte", p.s[at:])
		}
	default:
		if c < ' ' || c >= 0x7F || isLetter(rune(c)) || '0' <= c && c <= '9' {
			return nil, 0, p.errorf(at, "escape %.2q", p.s[at:])
		}
		r = rune(c)
	}
	switch {
	case err != nil:
		return nil, 0, err
	case s == nil:
		s, err = p.literal(r, at)
		return s, r, err
	case p.fold:
		return nil, 0, p.errorf(at, "case-insensitive %s", p.s[at:p.i])
	}
	return s, -1, nil
}

// property parses {Name} after \p or \P.
func (p *parser) property(at int, negated bool) (*set, error) {
	name, _, ok := strings.Cut(p.s[p.i:], "}")
	if !ok || !strings.HasPrefix(name, "{") {
		return nil, p.errorf(at, "property %.20s", p.s[at:])
	}
	p.i += len(name) + 1
	name = name[1:]
	if strings.HasPrefix(name, "^") {
		name, negated = name[1:], !negated
	}
	s, ok := category(name)
	if !ok {
		return nil, p.errorf(at, "property %.30s", p.s[at:])
	}
	if negated {
		return s.negate(), nil
	}
	return s, nil
}

// hex parses a code point with lo to hi hexadecimal digits.
func (p *parser) hex(at, lo, hi int) (rune, error) {
	n := 0
	for n < hi && strings.IndexByte("0123456789abcdefABCDEF", p.peekAt(n)) >= 0 {
		n++
	}
	v, err := strconv.ParseUint(p.s[p.i:p.i+n], 16, 32)
	if n < lo || err != nil || v > utf8.MaxRune || v >= 0xD800 && v <= 0xDFFF {
		return 0, p.errorf(at, "escape %.10s", p.s[at:])
	}
	p.i += n
	return rune(v), nil
}

func (p *parser) peekAt(n int) byte {
	if p.i+n < len(p.s) {
		return p.s[p.i+n]
	}
	return 0xFF
}
