package human

// Nearest returns the word of words that word was most likely meant to be, or
// "" when none is near: within a third of its length, and at most 3 edits.
func Nearest(word string, words []string) string {
	best, at := min(3, 1+len(word)/3)+1, ""
	for _, w := range words {
		if d := distance(word, w); d < best {
			best, at = d, w
		}
	}
	return at
}

// distance is the number of edits (insert, delete, replace, swap of neighbours)
// between a and b.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}
