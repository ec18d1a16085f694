package tokenize

import (
	"iter"
	"math"
	"strconv"
	"strings"
)

// Unshown counts a sample's calls that reached an engine but that the server's answer does not
// show. Only a tap in front of the engine can see such calls, so without a tap all counts are 0.
// Their tokens are in no row and in no failure. Counts saturate at 65,535.
type Unshown struct {
	// Retries, Failed and Cut count calls with the same prompt as a call that the answer shows.
	// Retries counts the calls that the engine answered. Failed counts the calls for which it
	// returned an error. Cut counts the calls whose answer was cut off.
	Retries uint16 `json:"retry,omitempty"`
	Failed  uint16 `json:"failed,omitempty"`
	Cut     uint16 `json:"cut,omitempty"`
	// Summaries counts the calls that the server made to summarize the history for a compaction.
	Summaries uint16 `json:"summary,omitempty"`
}

// unshownKinds lists the words for the counts, in the order of the fields. The words are also the
// JSON names.
var unshownKinds = [...]string{"retry", "failed", "cut", "summary"}

func (u *Unshown) counts() [len(unshownKinds)]*uint16 {
	return [...]*uint16{&u.Retries, &u.Failed, &u.Cut, &u.Summaries}
}

// Each yields the word and the count for each kind: retry, failed, cut, summary.
func (u Unshown) Each() iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		for i, n := range u.counts() {
			if !yield(unshownKinds[i], int(*n)) {
				return
			}
		}
	}
}

// Set sets the count for the kind with the given word. It returns false if no kind has this word.
func (u *Unshown) Set(word string, n int) bool {
	for i, count := range u.counts() {
		if unshownKinds[i] == word {
			*count = uint16(min(max(n, 0), math.MaxUint16)) //nolint:gosec // the value is bounded
			return true
		}
	}
	return false
}

// Plus returns the sum of u and o for each count.
func (u Unshown) Plus(o Unshown) Unshown {
	more := o.counts()
	for i, n := range u.counts() {
		*n = uint16(min(int(*n)+int(*more[i]), math.MaxUint16)) //nolint:gosec // the value is bounded
	}
	return u
}

// String returns the nonzero counts, such as "retry 1, summary 2", or "" if all are 0.
func (u Unshown) String() string {
	var parts []string
	for word, n := range u.Each() {
		if n > 0 {
			parts = append(parts, word+" "+strconv.Itoa(n))
		}
	}
	return strings.Join(parts, ", ")
}
