package human

import "github.com/rollout-rl/rollout/collector/letta/spelling"

// Nearest returns the word of words that word was most likely meant to be, or
// "" when none is near: within a third of its length, and at most 3 edits.
func Nearest(word string, words []string) string {
	best, at := min(3, 1+len(word)/3)+1, ""
	for _, w := range words {
		if d := spelling.Distance(word, w); d < best {
			best, at = d, w
		}
	}
	return at
}
