package tokenize

import (
	"math"
	"strconv"
	"strings"
)

// A VersionSpan states that one version of the weights sampled the output ids at the positions
// [Start, End). Version is the string that the engine reported.
type VersionSpan struct {
	Version    string
	Start, End int32
}

// policyVersion parses an engine's weight_version as a number. It returns -1 if word is not a
// non-negative int32. For example, an engine whose weights were never updated reports "default".
func policyVersion(word string) int32 {
	if n, err := strconv.ParseInt(word, 10, 32); err == nil && n >= 0 {
		return int32(n)
	}
	return -1
}

// VersionWord converts a weight_version that is a JSON number to a string: 7.0 becomes "7".
func VersionWord(number string) string {
	if !strings.ContainsAny(number, ".eE") {
		return number
	}
	if f, err := strconv.ParseFloat(number, 64); err == nil && f == math.Trunc(f) && math.Abs(f) <= math.MaxInt32 {
		return strconv.FormatInt(int64(f), 10)
	}
	return number
}

// OutputVersions returns the versions that sampled n output ids, for [Call.Version] and
// [Call.Versions]. The parameter word is the engine's weight_version (its newest version), or
// empty. The parameter spans holds the engine's weight_versions. It is nil if the engine sent none.
// If the spans do not cover each id exactly once and in order, or if the last span contradicts
// word, every id has version -1.
func OutputVersions(word string, spans []VersionSpan, n int) (version int32, each []int32) {
	if spans == nil {
		return policyVersion(word), nil
	}
	covered := covers(word, spans, n)
	if covered && len(spans) <= 1 {
		for i := range spans {
			word = spans[i].Version
		}
		return policyVersion(word), nil
	}
	each = make([]int32, n)
	fill(each, -1)
	for i := range spans {
		if s := &spans[i]; covered {
			fill(each[s.Start:s.End], policyVersion(s.Version))
		}
	}
	return -1, each
}

// covers reports whether the spans cover each of n ids exactly once and in order, and the last span
// does not contradict word.
func covers(word string, spans []VersionSpan, n int) bool {
	at, covered := int32(0), true
	for i := range spans {
		s := &spans[i]
		covered = covered && s.Start == at && s.End > s.Start && int(s.End) <= n
		at = s.End
	}
	covered = covered && int(at) == n
	if k := len(spans); covered && k > 0 && word != "" && spans[k-1].Version != word {
		v := policyVersion(word)
		covered = v >= 0 && v == policyVersion(spans[k-1].Version)
	}
	return covered
}

// outputSpans returns the spans of n output ids under the same rules as OutputVersions, but with the
// engine's own names. It returns nil if the versions are unknown.
func outputSpans(word string, spans []VersionSpan, n int) []VersionSpan {
	switch {
	case n == 0:
		return nil
	case spans == nil && word != "":
		return []VersionSpan{{Version: word, End: int32(n)}}
	case covers(word, spans, n):
		return spans
	}
	return nil
}
