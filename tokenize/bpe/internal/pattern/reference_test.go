package pattern

import "slices"

// ends calls then with each end of a match of n in s from at, in order of preference, until then
// returns true. This is the definition of a backtracking matcher.
func (n *node) ends(s []rune, at int, then func(end int) bool) bool {
	switch n.op {
	case opSet:
		return at < len(s) && n.set.has(kindOf(s[at]), s[at]) && then(at+1)
	case opLook:
		ok := at == len(s) && n.atEnd || at < len(s) && n.set.has(kindOf(s[at]), s[at])
		return ok && then(at)
	case opConcat:
		var next func(k, at int) bool
		next = func(k, at int) bool {
			if k == len(n.subs) {
				return then(at)
			}
			return n.subs[k].ends(s, at, func(end int) bool { return next(k+1, end) })
		}
		return next(0, at)
	case opAlternate:
		return slices.ContainsFunc(n.subs, func(sub *node) bool { return sub.ends(s, at, then) })
	case opRepeat:
		var more func(k, at int) bool
		more = func(k, at int) bool {
			if (n.max < 0 || k < n.max) && n.subs[0].ends(s, at, func(end int) bool { return more(k+1, end) }) {
				return true
			}
			return k >= n.min && then(at)
		}
		return more(0, at)
	}
	panic("no such op")
}

func (n *node) end(s string, i int) int {
	end := i
	rest := []rune(s[i:])
	n.ends(rest, 0, func(e int) bool { end = i + len(string(rest[:e])); return true })
	return end
}
