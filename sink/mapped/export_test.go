package mapped

const CanMap = canMap

// Mapped reports whether the list is outside the heap.
func (s *Sorted[T]) Mapped() bool { return s != nil && s.mapped }
