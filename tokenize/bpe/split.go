package bpe

import "github.com/rollout-rl/rollout/tokenize/bpe/internal/pattern"

// A stage splits each piece that the previous stage produced.
type stage struct {
	cut     splitter         // if not nil, returns the end of a piece, and the other fields are unused
	pattern *pattern.Pattern // the pattern to match in a piece if cut is nil
	expr    string           // the source of pattern if it is a regular expression
	text    string           // the text of pattern if it is a string
	gaps    gapRule
	invert  bool // swaps matches and gaps
}

// A splitter returns the end of the piece that begins at s[i]. s must be valid UTF-8, i must be a
// character boundary, and i < len(s). The result is greater than i.
type splitter func(s string, i int) int

// A gapRule is the behavior of a Split in tokenizer.json. It determines how matches and the gaps
// between them become pieces.
type gapRule string

const (
	isolated           gapRule = "Isolated"           // each match and each gap is a piece
	removed            gapRule = "Removed"            // only gaps are pieces
	mergedWithPrevious gapRule = "MergedWithPrevious" // a match is appended to the gap before it
	mergedWithNext     gapRule = "MergedWithNext"     // a match is prepended to the gap after it
	contiguous         gapRule = "Contiguous"         // adjacent matches are one piece
)

type cutList struct {
	st         *stage
	s          string
	at         int
	start, end int // the next match
	found      bool
}

// next returns the next piece s[from:to]. At the end of the text, it returns two equal positions.
func (c *cutList) next() (from, to int) {
	if from = c.at; from == len(c.s) {
		return from, from
	}
	switch {
	case c.st.cut != nil:
		c.at = c.st.cut(c.s, from)
		return from, c.at
	case c.st.gaps == isolated:
		if c.at = c.st.pattern.End(c.s, from); c.at == from {
			c.at, _ = c.st.pattern.Next(c.s, from)
		}
		return from, c.at
	}
	for c.at < len(c.s) {
		from, was := c.at, c.isMatch()
		to := c.step()
		if was && c.st.gaps == removed {
			continue
		}
		for c.at < len(c.s) && c.st.gaps.joins(was, c.isMatch()) {
			if to = c.step(); c.st.gaps != contiguous {
				break
			}
		}
		return from, to
	}
	return c.at, c.at
}

// isMatch reports whether a match begins at c.at. Otherwise, a gap begins there. With invert,
// matches count as gaps and gaps as matches.
func (c *cutList) isMatch() bool {
	if !c.found {
		c.start, c.end = c.st.pattern.Next(c.s, c.at)
		c.found = true
	}
	return (c.start == c.at) != c.st.invert
}

// step advances over the match or gap that isMatch found.
func (c *cutList) step() int {
	if c.start > c.at {
		c.at = c.start
	} else {
		c.at, c.found = c.end, false
	}
	return c.at
}

// joins reports whether a match or gap is in the same piece as the match or gap after it.
func (g gapRule) joins(isMatch, nextIsMatch bool) bool {
	switch g {
	case mergedWithPrevious:
		return !isMatch && nextIsMatch
	case mergedWithNext:
		return isMatch && !nextIsMatch
	case contiguous:
		return isMatch == nextIsMatch
	default:
		return false
	}
}

func regexStage(expr string, gaps gapRule, invert bool) (stage, error) {
	p, err := compile(expr)
	if err != nil {
		return stage{}, err
	}
	if p.Covers() && gaps == removed && invert {
		gaps, invert = isolated, false // equivalent, because there are no gaps
	}
	return stage{pattern: p, expr: expr, gaps: gaps, invert: invert}, nil
}

func stringStage(text string, gaps gapRule, invert bool) (stage, error) {
	p, err := pattern.Literal(text)
	if err != nil {
		return stage{}, unsupported("pre_tokenizer Split string %.1000q: %v", text, err)
	}
	return stage{pattern: p, text: text, gaps: gaps, invert: invert}, nil
}
