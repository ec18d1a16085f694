package report

import (
	"cmp"
	"container/heap"
	"slices"
)

// maxSlow is how many of the slowest samples a report lists.
const maxSlow = 20

// slow keeps c if it is one of the slowest.
func (s *survey) slow(c Slow) {
	if len(s.slowest) < maxSlow {
		heap.Push(&s.slowest, c)
	} else if c.Seconds > s.slowest[0].Seconds {
		s.slowest[0] = c
		heap.Fix(&s.slowest, 0)
	}
}

// A slowHeap has the fastest of the slowest samples on top.
type slowHeap []Slow

func (h slowHeap) Len() int { return len(h) }

func (h slowHeap) Less(i, j int) bool { return h[i].Seconds < h[j].Seconds }

func (h slowHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *slowHeap) Push(v any) {
	if s, ok := v.(Slow); ok {
		*h = append(*h, s)
	}
}

// Pop implements heap.Interface.
func (h *slowHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

func (h slowHeap) sorted() []Slow {
	slices.SortFunc(h, func(a, b Slow) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.SampleKey, b.SampleKey))
	})
	return h
}
