package report

import (
	"cmp"
	"slices"
)

// maxSlow is the number of slowest samples that a report lists.
const maxSlow = 20

// slow adds a sample. It occasionally drops samples that cannot be among the slowest.
func (s *survey) slow(c Slow) {
	if s.slowest = append(s.slowest, c); len(s.slowest) >= 50*maxSlow {
		s.slowest = slowestOf(s.slowest)
	}
}

// slowestOf sorts the samples and returns the slowest ones.
func slowestOf(all []Slow) []Slow {
	slices.SortFunc(all, func(a, b Slow) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.SampleKey, b.SampleKey))
	})
	return all[:min(len(all), maxSlow)]
}
