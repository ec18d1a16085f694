package mapped

import (
	"runtime"
	"sort"
)

// SpillBytes is the size above which a list is mapped. A list of this size has about 520,000
// entries of 32 bytes.
const SpillBytes = 16 << 20

// A Sorted is an immutable sorted list. It is safe for concurrent use. If the list is mapped, the
// mapping is removed some time after the list becomes unreachable.
type Sorted[T any] struct {
	items  []T
	mapped bool
}

// New returns a Sorted that contains items. It takes ownership of items. The items must be sorted,
// and their type must not contain pointers. If the list is larger than SpillBytes, New writes the
// list to a file in dir and blocks until the file is written. If the list cannot be mapped, it
// stays in the heap.
func New[T any](dir string, items []T) *Sorted[T] {
	s := &Sorted[T]{items: items}
	raw := bytesOf(items)
	if len(raw) <= SpillBytes {
		return s
	}
	mem := mapFile(dir, raw)
	if mem == nil {
		return s
	}
	s.items, s.mapped = itemsOf[T](mem, len(items)), true
	runtime.AddCleanup(s, unmap, mem)
	return s
}

// Len returns the number of items. A nil list is empty.
func (s *Sorted[T]) Len() int {
	if s == nil {
		return 0
	}
	return len(s.items)
}

// Search returns the item for which compare returns 0. compare must return a negative number for
// all items before that item and a positive number for all items after it. compare must not keep
// its argument.
func (s *Sorted[T]) Search(compare func(*T) int) (item T, ok bool) {
	n := s.Len()
	i := sort.Search(n, func(i int) bool { return compare(&s.items[i]) >= 0 })
	if i < n && compare(&s.items[i]) == 0 {
		item, ok = s.items[i], true
	}
	runtime.KeepAlive(s) // the mapping must outlive the search
	return item, ok
}

// Each calls f with every item, in order. f must not keep its argument.
func (s *Sorted[T]) Each(f func(*T)) {
	for i := range s.Len() {
		f(&s.items[i])
	}
	runtime.KeepAlive(s)
}
