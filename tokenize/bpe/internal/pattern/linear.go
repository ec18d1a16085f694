package pattern

// linear reports whether splitting takes linear time. A run of the matcher can read past the end of
// its match, or it can find no match. Later runs then reread that text. This is harmless unless a
// run can read ahead without limit through text in which later runs find no match.
//
// Therefore linear searches a graph of pairs of states. Each pair contains the state of a run that
// reads past its match and the state of the later runs over the same text. If the graph has a cycle
// in which the later runs make no progress, linear returns false. With such a cycle, the number of
// runs that read a character could grow with the length of the text.
func (d *determinizer) linear() bool {
	n := len(d.states)
	l := &pairSearch{d: d, fresh: n, lost: n + 1, color: map[[2]int]uint8{}}
	for q := range d.states {
		for c, to := range d.states[q].next[:d.n] {
			switch {
			case to < 0 || d.sure[to]:
			case d.states[q].match[c]: // the next match begins with a character of class c
				p, _ := l.follow(l.fresh, c)
				l.todo = append(l.todo, [2]int{int(to), p})
			case q == 0: // the character can be in a gap
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

// maxPairs limits the number of pairs, and so the time for checking a pattern.
const maxPairs = 50_000

// visit follows the steps from a pair in which the later runs make no progress, and adds the other
// steps to l.todo. It returns false if it finds a cycle or reaches maxPairs.
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

// follow advances the second state p over a character of class c. The result progress is true in
// three cases: the character is in a gap, a match ends before it, or a match is certain to follow.
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
