package bpe

//go:generate go run ./internal/gen

// The classes of characters that split patterns ask for, one bit each, of
// Unicode 16.0 whatever Go's own tables are.
//
//	\p{L}  letter                \p{M}  upper and lower, not letter
//	\p{N}  number                [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]  upper
//	\s     space                 [\p{Ll}\p{Lm}\p{Lo}\p{M}]        lower
//	[\p{P}\p{S}]  symbol         [\p{L}\p{M}]  upper or lower
const (
	letter uint8 = 1 << iota
	number
	space
	upper
	lower
	symbol
	cjk // DeepSeek's [一-龥぀-ゟ゠-ヿ]
	han // \p{Han}

	mark = upper | lower // in any letter or mark, both in every mark
)

// asciiClass spares ASCII the second stage. 256 entries, so that indexing by a
// byte needs no check; those from 0x80 on are zero and not used.
var asciiClass = func() (a [256]uint8) {
	copy(a[:0x80], classBlock[classIndex[0]][:0x80])
	return a
}()

// classAt returns the class of the character at s[i:] and its length in bytes.
// s[i:] is not empty and begins with a valid character.
func classAt(s string, i int) (class uint8, size int) {
	b := s[i]
	switch {
	case b < 0x80:
		return asciiClass[b], 1
	case b < 0xE0 && i+1 < len(s):
		r := uint32(b&0x1F)<<6 | uint32(s[i+1]&0x3F)
		return classBlock[classIndex[r>>8]][r&255], 2
	case b < 0xF0 && i+2 < len(s):
		r := uint32(b&0x0F)<<12 | uint32(s[i+1]&0x3F)<<6 | uint32(s[i+2]&0x3F)
		return classBlock[classIndex[r>>8]][r&255], 3
	case i+3 < len(s):
		r := uint32(b&0x07)<<18 | uint32(s[i+1]&0x3F)<<12 | uint32(s[i+2]&0x3F)<<6 | uint32(s[i+3]&0x3F)
		if r < 0x110000 {
			return classBlock[classIndex[r>>8]][r&255], 4
		}
	}
	return 0, 1 // not reached on valid UTF-8
}

// spanAny returns the end of the run from i of characters with a bit of mask.
func spanAny(s string, i int, mask uint8) int {
	for i < len(s) {
		if b := s[i]; b < 0x80 {
			if asciiClass[b]&mask == 0 {
				return i
			}
			i++
			continue
		}
		c, n := classAt(s, i)
		if c&mask == 0 {
			return i
		}
		i += n
	}
	return i
}

// spanNone returns the end of the run from i of characters with no bit of mask.
func spanNone(s string, i int, mask uint8) int {
	for i < len(s) {
		if b := s[i]; b < 0x80 {
			if asciiClass[b]&mask != 0 {
				return i
			}
			i++
			continue
		}
		c, n := classAt(s, i)
		if c&mask != 0 {
			return i
		}
		i += n
	}
	return i
}

// spanNumbers returns the end of at most n numbers from i.
func spanNumbers(s string, i, n int) int {
	for ; n > 0 && i < len(s); n-- {
		c, size := classAt(s, i)
		if c&number == 0 {
			break
		}
		i += size
	}
	return i
}

// spanNewlines returns the end of [\r\n]* from i.
func spanNewlines(s string, i int) int {
	for i < len(s) && (s[i] == '\r' || s[i] == '\n') {
		i++
	}
	return i
}

// spanNewlinesSlashes returns the end of [\r\n/]* from i.
func spanNewlinesSlashes(s string, i int) int {
	for i < len(s) && (s[i] == '\r' || s[i] == '\n' || s[i] == '/') {
		i++
	}
	return i
}

// isWordRune reports whether \w matches r, in the sense of UTS 18.
func isWordRune(r rune) bool {
	lo, hi := 0, len(wordRanges)
	for lo < hi {
		m := int(uint(lo+hi) >> 1)
		switch {
		case r < wordRanges[m][0]:
			hi = m
		case r > wordRanges[m][1]:
			lo = m + 1
		default:
			return true
		}
	}
	return false
}
