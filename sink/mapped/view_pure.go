//go:build purego

package mapped

// Without package unsafe a list cannot be mapped and stays in the heap.

func bytesOf[T any]([]T) []byte { return nil }

func itemsOf[T any]([]byte, int) []T { return nil }
