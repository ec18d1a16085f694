package bpe

import "unicode/utf8"

// Kimi's own code splits its input before it applies the pattern.
const (
	kimiChunkChars = 400_000
	kimiRunChars   = 25_000
)

// kimiChunk returns the end of the chunk that begins at s[i]. *window is the end of the current
// window of kimiChunkChars characters. When i reaches this position, kimiChunk moves *window to the
// end of the next window. A chunk ends at the end of the window. It also ends before a character
// that would make a run of white space, or a run of other characters, longer than kimiRunChars.
func kimiChunk(s string, i int, window *int) int {
	if i >= *window {
		j := i
		for k := 0; k < kimiChunkChars && j < len(s); k++ {
			_, n := utf8.DecodeRuneInString(s[j:])
			j += n
		}
		*window = j
	}
	run, was := 0, false
	for j := i; j < *window; {
		r, n := utf8.DecodeRuneInString(s[j:])
		// As in Python's str.isspace, the four ASCII separators count as white space.
		is := isSpace(r) || 0x1C <= r && r <= 0x1F
		if j == i || is != was {
			run, was = 1, is
		} else if run++; run > kimiRunChars {
			return j
		}
		j += n
	}
	return *window
}
