package pattern

// linear reports whether splitting takes linear time. A run of the matcher can read past the match
// that it finds, or find no match. Later runs then read the same text again. That is harmless
// unless a run can read an unlimited amount of text in which later runs find no match.
//
// Therefore linear follows each run that reads past its match, together with the later runs, in a
// graph of pairs of states. A cycle of pairs in which the later runs make no progress is not
// allowed. With such a cycle, each character could be read by as many runs as there are characters
// in the text.
func (d *determinizer) linear() bool {
	n := len(d.states)
	l := &pairSearch{d: d, fresh: n, lost: n + 1, color: map[[2]int]uint8{}}
	for q := range d.states {
		for c, to := range d.states[q].next[:d.n] {
			switch {
			case to < 0 || d.sure[to]:
			case d.states[q].match[c]: // the next match begins with c
				p, _ := l.follow(l.fresh, c)
				l.todo = append(l.todo, [2]int{int(to), p})
			case q == 0: // the character can be a gap
				l.todo = append(l.todo, [2]int{int(to), l.fresh})
			}
		}
	}
	for len(l.todo) > 0 {
		pair := l.todo[len(l.todo)-1]
		l.todo = l.todo[:len(l.todo)-1]
		if !l.visit(pair) {
			return false
		}
	}
	return true
}

// A pairSearch searches for cycles without progress. The first element of a pair is the state of
// the run. The second element is the state of the later runs, or fresh (between two matches), or
// lost (a later run itself reads past its match).
type pairSearch struct {
	d           *determinizer
	fresh, lost int
	color       map[[2]int]uint8 // 1 while being visited, then 2
	todo        [][2]int
}

// maxPairs limits the number of pairs, and thus the time that it takes to check a pattern.
const maxPairs = 50_000

// visit follows all steps from a pair that make no progress. It returns false if it finds a cycle
// or reaches maxPairs.
func (l *pairSearch) visit(pair [2]int) bool {
	switch l.color[pair] {
	case 1:
		return false
	case 2:
		return true
	}
	if len(l.color) >= maxPairs {
		return false
	}
	l.color[pair] = 1
	s := &l.d.states[pair[0]]
	for c, to := range s.next[:l.d.n] {
		if to < 0 || s.match[c] || l.d.sure[to] {
			continue
		}
		p, progress := l.follow(pair[1], c)
		next := [2]int{int(to), p}
		if progress {
			l.todo = append(l.todo, next)
		} else if !l.visit(next) {
			return false
		}
	}
	l.color[pair] = 2
	return true
}

// follow advances the second state p over a character of class c. progress is true if the character
// is a gap, or if a match ends before the character or is certain to follow.
func (l *pairSearch) follow(p, c int) (next int, progress bool) {
	if p == l.lost {
		return p, false
	}
	s := &l.d.states[p%l.fresh]
	to, matched := s.next[c], s.match[c]
	switch {
	case to >= 0:
		return int(to), matched || l.d.sure[to]
	case matched:
		p, _ = l.follow(l.fresh, c)
		return p, true
	case p == l.fresh:
		return l.fresh, true
	}
	return l.lost, false
}
