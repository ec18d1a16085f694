package bpe

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/tokenize/internal/textview"
)

// A metaspace replaces spaces with another character and can add this character before the text.
type metaspace struct {
	mark    string // the character that replaces a space
	prepend prependScheme
	split   bool // true if text is cut before each mark
}

type prependScheme string

const (
	prependAlways prependScheme = "always"
	prependFirst  prependScheme = "first" // only before the section that begins the whole text
	prependNever  prependScheme = "never"
)

// readMetaspace decodes a Metaspace, which can be a pre-tokenizer or a decoder.
func readMetaspace(p part, what string) (*metaspace, error) {
	var s struct {
		Type           string        `json:"type"`
		Replacement    string        `json:"replacement"`
		PrependScheme  prependScheme `json:"prepend_scheme,omitempty"`
		Split          *bool         `json:"split"`
		AddPrefixSpace *bool         `json:"add_prefix_space"`
		StrRep         *string       `json:"str_rep"` // ignored, as in the reference engine
	}
	s.PrependScheme = prependAlways
	if err := strict(p.raw, what, &s); err != nil {
		return nil, err
	}
	m := &metaspace{mark: s.Replacement, prepend: s.PrependScheme, split: s.Split == nil || *s.Split}
	if utf8.RuneCountInString(m.mark) != 1 {
		return nil, fmt.Errorf("%w: %s Metaspace: replacement %q is not one character", ErrCorrupt, what, m.mark)
	}
	switch m.prepend {
	case prependAlways, prependFirst, prependNever:
	default:
		return nil, unsupported("%s Metaspace with prepend_scheme %q", what, m.prepend)
	}
	if s.AddPrefixSpace != nil && !*s.AddPrefixSpace && m.prepend != prependNever {
		return nil, fmt.Errorf("%w: %s Metaspace: add_prefix_space false and prepend_scheme %q", ErrCorrupt, what, m.prepend)
	}
	return m, nil
}

// apply replaces each space in s with m.mark and, depending on m.prepend, adds m.mark before s. A
// result that differs from s is stored in buf. The parameter first must be true if s begins the
// whole text.
func (m *metaspace) apply(buf *[]byte, s string, first bool) string {
	add := m.prepend == prependAlways || m.prepend == prependFirst && first
	add = add && s != "" && s[0] != ' ' && !strings.HasPrefix(s, m.mark)
	if !add && strings.IndexByte(s, ' ') < 0 {
		return s
	}
	out := (*buf)[:0]
	if add {
		out = append(out, m.mark...)
	}
	*buf = appendReplaced(out, s, " ", m.mark)
	return textview.Of(*buf)
}

// cut is the splitter for a metaspace whose field split is true. Each mark begins a new piece.
func (m *metaspace) cut(s string, i int) int {
	_, n := utf8.DecodeRuneInString(s[i:])
	if k := strings.Index(s[i+n:], m.mark); k >= 0 {
		return i + n + k
	}
	return len(s)
}
