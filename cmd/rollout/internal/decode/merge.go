package decode

import "slices"

// Merge returns the conversation of several rows in their order. The prompt of a later row repeats the
// messages of the row before, so it adds only the messages after them.
func Merge(rows [][]Message) (all []Message) {
	for _, next := range rows {
		all = append(all, next[repeated(all, next):]...)
	}
	return all
}

// repeated returns the number of leading messages of next that repeat all.
func repeated(all, next []Message) int {
	prefix := 0
	for prefix < min(len(all), len(next)) && same(&all[prefix], &next[prefix]) {
		prefix++
	}
	if prefix == len(all) {
		return prefix
	}
	// An earlier message has changed. Look for the longest repetition of the last messages.
	best, n := 0, prefix
	for k := range next {
		run := 0
		for run < min(len(all), k+1) && same(&all[len(all)-1-run], &next[k-run]) {
			run++
		}
		if run > 0 && run >= best {
			best, n = run, max(prefix, k+1)
		}
	}
	return n
}

// same reports whether b repeats a. Templates leave out the reasoning of earlier answers, and servers leave out the
// text before a call.
func same(a, b *Message) bool {
	return a.Role == b.Role && b.Span < 0 && (a.Content == b.Content || b.Content == "" && len(b.Calls) > 0) &&
		slices.EqualFunc(a.Calls, b.Calls, func(a, b Call) bool { return a.Name == b.Name && a.Arguments == b.Arguments })
}
