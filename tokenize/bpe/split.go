package bpe

import "github.com/rollout-rl/rollout/tokenize/bpe/internal/pattern"

// A stage cuts each piece that the one before left.
type stage struct {
	cut     splitter         // not nil: says where a piece ends; the rest is not used
	pattern *pattern.Pattern // else: what is looked for in a piece
	expr    string           // its text where it is a regular expression
	text    string           // its text where it is a string
	gaps    gapRule
	invert  bool // what lies between matches counts as a match, and a match does not
}

// A splitter returns the end of the piece that begins at s[i]. i is a border of a
// character of valid UTF-8 and i < len(s); the result is greater than i.
type splitter func(s string, i int) int

// A gapRule says what becomes of the matches of a pattern and of the gaps between
// them. The names are those of tokenizer.json.
type gapRule string

const (
	isolated           gapRule = "Isolated"           // each is a piece
	removed            gapRule = "Removed"            // only gaps are pieces
	mergedWithPrevious gapRule = "MergedWithPrevious" // a match ends the gap before it
	mergedWithNext     gapRule = "MergedWithNext"     // a match begins the gap behind it
	contiguous         gapRule = "Contiguous"         // matches without a gap are one piece
)

// A cutList makes the pieces of s by a stage.
type cutList struct {
	st         *stage
	s          string
	at         int
	start, end int // the next match
	found      bool
}

// next returns the next piece s[from:to]; from == to at the end.
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

// isMatch reports whether a match, or else a gap, begins at c.at.
func (c *cutList) isMatch() bool {
	if !c.found {
		c.start, c.end = c.st.pattern.Next(c.s, c.at)
		c.found = true
	}
	return (c.start == c.at) != c.st.invert
}

// step steps over the match or gap that isMatch has found.
func (c *cutList) step() int {
	if c.start > c.at {
		c.at = c.start
	} else {
		c.at, c.found = c.end, false
	}
	return c.at
}

// joins reports whether a match or gap is of one piece with the one behind it.
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

// regexStage returns the stage of a regular expression.
func regexStage(expr string, gaps gapRule, invert bool) (stage, error) {
	p, err := compile(expr)
	if err != nil {
		return stage{}, err
	}
	if p.Covers() && gaps == removed && invert {
		gaps, invert = isolated, false // there are no gaps
	}
	return stage{pattern: p, expr: expr, gaps: gaps, invert: invert}, nil
}

// stringStage returns the stage of a text that is looked for.
func stringStage(text string, gaps gapRule, invert bool) (stage, error) {
	p, err := pattern.Literal(text)
	if err != nil {
		return stage{}, unsupported("pre_tokenizer Split string %.1000q: %v", text, err)
	}
	return stage{pattern: p, text: text, gaps: gaps, invert: invert}, nil
}
