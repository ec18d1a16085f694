//go:build purego

package mapped

// Without package unsafe, a list cannot be mapped, so it stays in the heap.

func bytesOf[T any]([]T) []byte { return nil }

func itemsOf[T any]([]byte, int) []T { return nil }
