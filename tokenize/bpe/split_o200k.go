package bpe

// The o200k pattern and its relatives tell upper from lower case: a pre-token is
// letters and marks whose case changes at most once, from upper to lower.

func splitO200K(s string, i int) int  { return splitO(s, i, 3, true, true) }
func splitTekken(s string, i int) int { return splitO(s, i, 1, false, true) }

// splitO is o200k with at most digits numbers in a pre-token, with or without
// contractions, and with [\r\n/]* or [\r\n]* after symbols.
func splitO(s string, i, digits int, contractions, slashes bool) int {
	c, n := classAt(s, i)
	end, ok := 0, false
	switch {
	case c&letter != 0:
		end, _ = caseRun(s, i) // a letter begins one alternative or the other
		ok = true
	case c&number != 0:
		return spanNumbers(s, i, digits)
	default:
		end, ok = prefixed(s, i, n, c)
	}
	if ok {
		if contractions && end < len(s) && s[end] == '\'' {
			end += contraction(s, end)
		}
		return end
	}
	return splitOther(s, i, n, c, slashes)
}

// prefixed is the letter alternatives at a character that is neither letter nor
// number: it may stand before the letters, and a mark may be one of them.
func prefixed(s string, i, n int, c uint8) (end int, ok bool) {
	second := -1
	if b := s[i]; b != '\r' && b != '\n' && i+n < len(s) {
		if c2, _ := classAt(s, i+n); c2&mark != 0 {
			end, ok := caseRun(s, i+n)
			if ok {
				return end, true
			}
			second = end // only the second alternative, tried after the first without prefix
		}
	}
	if c&mark != 0 {
		if end, ok := caseRun(s, i); ok {
			return end, true
		}
	}
	return second, second > i+n
}

// caseRun is U*W+ at s[i], else U+W* with ok false, where U is upper and W lower.
// Both may be the same character, so U* gives back the last that W+ can have.
func caseRun(s string, i int) (end int, ok bool) {
	j, both := i, -1
	for j < len(s) {
		c, n := classAt(s, j)
		if c&upper == 0 {
			if c&lower != 0 {
				return spanAny(s, j+n, lower), true
			}
			break
		}
		j += n
		if c&lower != 0 {
			both = j
		}
	}
	if both >= 0 {
		return both, true
	}
	return j, false
}

// splitOther is the alternatives after numbers: symbols, then white space.
func splitOther(s string, i, n int, c uint8, slashes bool) int {
	j := -1
	if s[i] == ' ' && i+1 < len(s) {
		if c2, n2 := classAt(s, i+1); c2&(space|letter|number) == 0 {
			j = i + 1 + n2
		}
	}
	if j < 0 {
		if c&space != 0 {
			return splitSpace(s, i)
		}
		j = i + n
	}
	j = spanNone(s, j, space|letter|number)
	if slashes {
		return spanNewlinesSlashes(s, j)
	}
	return spanNewlines(s, j)
}
