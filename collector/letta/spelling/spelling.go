// Package spelling compares words to suggest a correction.
package spelling

// Distance returns the number of edits that turn a into b. An edit inserts, deletes or replaces a
// byte, or swaps two adjacent bytes.
func Distance(a, b string) int {
	// The last three rows of the table: for the byte before the previous byte, for the previous
	// byte, and for the current byte.
	width := len(b) + 1
	rows := make([]int, 3*width)
	before, last, now := rows[:width], rows[width:2*width], rows[2*width:]
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		now[0] = i + 1
		for j := range len(b) {
			replace := last[j]
			if a[i] != b[j] {
				replace++
			}
			now[j+1] = min(replace, last[j+1]+1, now[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				now[j+1] = min(now[j+1], before[j-1]+1)
			}
		}
		before, last, now = last, now, before
	}
	return last[len(b)]
}
