package bpe

import (
	"slices"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/tokenize/bpe/internal/ucd"
	"github.com/rollout-rl/rollout/tokenize/internal/textview"
)

// This file implements canonical composition (NFC) according to Unicode 9.0, as the reference
// engine's normalizer does. Unlike golang.org/x/text, it does not insert U+034F into long runs of
// marks.

// Hangul syllables are composed by arithmetic (Unicode, section 3.12).
const (
	hangulS, hangulL, hangulV, hangulT = 0xAC00, 0x1100, 0x1161, 0x11A7
	hangulLs, hangulVs, hangulTs       = 19, 21, 28
	hangulSs                           = hangulLs * hangulVs * hangulTs
)

type markedRune struct {
	r     rune
	class uint8
}

// nfc returns s in NFC. The second result reports whether the text is in n.out.
func (n *normalizer) nfc(s string) (_ string, changed bool) {
	data := ucd.NFC()
	i := nextNotNFC(data.Props, s, 0)
	if i == len(s) {
		return s, false
	}
	n.out = n.out[:0]
	done := 0
	for i < len(s) {
		start, end := i, i
		for start > done {
			r, size := utf8.DecodeLastRuneInString(s[:start])
			start -= size
			if data.Props.At(r)&(ucd.NotYes|ucd.Class) == 0 {
				break
			}
		}
		for end < len(s) {
			r, size := utf8.DecodeRuneInString(s[end:])
			if data.Props.At(r)&(ucd.NotYes|ucd.Class) == 0 && end > i {
				break
			}
			end += size
		}
		n.out = append(n.out, s[done:start]...)
		n.compose(data, s[start:end])
		done = end
		i = nextNotNFC(data.Props, s, end)
	}
	n.out = append(n.out, s[done:]...)
	return textview.Of(n.out), true
}

// nextNotNFC returns the position of the first character at or after i that fails the NFC quick
// check, or len(s). i must be the start of s or the end of a composed piece.
func nextNotNFC(props *ucd.Table[uint16], s string, i int) int {
	last := uint16(0)
	for i < len(s) {
		if i+8 <= len(s) && load8(s[i:])&0x8080808080808080 == 0 {
			i += 8
			last = 0
			continue
		}
		b := s[i]
		if b < 0xCC { // characters below U+0300 are always composed
			if b < 0x80 {
				i++
			} else {
				i += 2
			}
			last = 0
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		p := props.At(r)
		if p&ucd.NotYes != 0 {
			return i
		}
		class := p & ucd.Class
		if class != 0 && class < last {
			return i
		}
		last = class
		i += size
	}
	return i
}

func (n *normalizer) compose(data *ucd.Normal, s string) {
	d := n.runes[:0]
	for _, r := range s {
		d = decompose(data, d, r)
	}
	for i := 0; i < len(d); i++ { // sort marks into canonical order
		if d[i].class == 0 {
			continue
		}
		j := i + 1
		for j < len(d) && d[j].class != 0 {
			j++
		}
		slices.SortStableFunc(d[i:j], func(a, b markedRune) int { return int(a.class) - int(b.class) })
		i = j - 1
	}
	n.runes = d

	starter := -1 // position of the last starter in d
	kept := 0     // d[:kept] is the result so far
	last := -1    // class of the last character kept after the starter, or -1
	for _, m := range d {
		if starter >= 0 && (last < int(m.class) || last < 0) {
			if c, ok := composePair(data, d[starter].r, m.r); ok {
				d[starter].r = c
				continue
			}
		}
		if m.class == 0 {
			starter, last = kept, -1
		} else {
			last = int(m.class)
		}
		d[kept] = m
		kept++
	}
	for _, m := range d[:kept] {
		n.out = utf8.AppendRune(n.out, m.r)
	}
}

func decompose(data *ucd.Normal, d []markedRune, r rune) []markedRune {
	if s := r - hangulS; 0 <= s && s < hangulSs {
		d = append(d, markedRune{r: hangulL + s/(hangulVs*hangulTs)}, markedRune{r: hangulV + s%(hangulVs*hangulTs)/hangulTs})
		if t := s % hangulTs; t != 0 {
			d = append(d, markedRune{r: hangulT + t})
		}
		return d
	}
	p := data.Props.At(r)
	if p&ucd.Decomposes == 0 {
		return append(d, markedRune{r, uint8(p & ucd.Class)})
	}
	pair := data.Decomposed[r]
	d = decompose(data, d, pair[0])
	if pair[1] != 0 {
		d = decompose(data, d, pair[1])
	}
	return d
}

func composePair(data *ucd.Normal, a, b rune) (rune, bool) {
	if l, v := a-hangulL, b-hangulV; 0 <= l && l < hangulLs && 0 <= v && v < hangulVs {
		return hangulS + (l*hangulVs+v)*hangulTs, true
	}
	if s, t := a-hangulS, b-hangulT; 0 <= s && s < hangulSs && s%hangulTs == 0 && 0 < t && t < hangulTs {
		return a + t, true
	}
	r, found := data.Composed[[2]rune{a, b}]
	return r, found
}
