package bpe

import "unicode/utf8"

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
			_, n := utf8.DecodeRuneInString(s[j:])
			j += n
		}
		*window = j
	}
	run, was := 0, false
	for j := i; j < *window; {
		r, n := utf8.DecodeRuneInString(s[j:])
		// str.isspace of Python: \s and the four separators of ASCII
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
