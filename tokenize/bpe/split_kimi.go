package bpe

// Kimi's pattern is o200k with Chinese characters set apart: a run of \p{Han} is
// a pre-token, and none of them is a letter to the alternatives that follow.

func splitKimi(s string, i int) int {
	c, n := classAt(s, i)
	if c&han != 0 {
		return spanAny(s, i+n, han)
	}
	end, ok := 0, false
	switch {
	case c&letter != 0:
		end, _ = caseRunNoHan(s, i)
		ok = true
	case c&number != 0:
		return spanNumbers(s, i, 3)
	default:
		end, ok = prefixedNoHan(s, i, n, c)
	}
	if ok {
		if end < len(s) && s[end] == '\'' {
			end += contraction(s, end)
		}
		return end
	}
	return splitOther(s, i, n, c, false)
}

// prefixedNoHan is prefixed for Kimi.
func prefixedNoHan(s string, i, n int, c uint8) (end int, ok bool) {
	second := -1
	if b := s[i]; b != '\r' && b != '\n' && i+n < len(s) {
		if c2, _ := classAt(s, i+n); c2&mark != 0 && c2&han == 0 {
			end, ok := caseRunNoHan(s, i+n)
			if ok {
				return end, true
			}
			second = end
		}
	}
	if c&mark != 0 {
		if end, ok := caseRunNoHan(s, i); ok {
			return end, true
		}
	}
	return second, second > i+n
}

// caseRunNoHan is caseRun for Kimi.
func caseRunNoHan(s string, i int) (end int, ok bool) {
	j, both := i, -1
	for j < len(s) {
		c, n := classAt(s, j)
		if c&han != 0 {
			break
		}
		if c&upper == 0 {
			if c&lower == 0 {
				break
			}
			for j += n; j < len(s); j += n {
				if c, n = classAt(s, j); c&lower == 0 || c&han != 0 {
					break
				}
			}
			return j, true
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

// Kimi's own code cuts its input before the pattern sees it.
const (
	kimiChunkChars = 400_000
	kimiRunChars   = 25_000
)

// kimiChunk returns the end of the chunk that begins at s[i]. window is the end
// of the chunkChars-window that i lies in, and is moved on when i reaches it: a
// chunk ends there, and before a character that would make a run of white space,
// or of anything else, longer than runChars.
func kimiChunk(s string, i int, window *int) int {
	if i >= *window {
		j := i
		for k := 0; k < kimiChunkChars && j < len(s); k++ {
			_, n := classAt(s, j)
			j += n
		}
		*window = j
	}
	run, was := 0, false
	for j := i; j < *window; {
		c, n := classAt(s, j)
		// str.isspace of Python: \s and the four separators of ASCII
		is := c&space != 0 || s[j] >= 0x1C && s[j] <= 0x1F
		if j == i || is != was {
			run, was = 1, is
		} else if run++; run > kimiRunChars {
			return j
		}
		j += n
	}
	return *window
}
