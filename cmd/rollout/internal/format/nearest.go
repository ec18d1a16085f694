package format

import "github.com/rollout-rl/rollout/collector/letta/spelling"

// Nearest returns the entry of words nearest to word, or "" if none is near. Near means within a
// third of its length, plus one, and at most 3 edits.
func Nearest(word string, words []string) string {
	best, at := min(3, 1+len(word)/3)+1, ""
	for _, w := range words {
		if d := spelling.Distance(word, w); d < best {
			best, at = d, w
		}
	}
	return at
}
