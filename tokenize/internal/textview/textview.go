//go:build !purego

// Package textview views bytes as a string.
package textview

import "unsafe"

// Of returns a string that shares the memory of b and is valid until b changes. It avoids
// allocations when a reused reply is decoded and when composed text is encoded. With the build tag
// purego it copies b.
func Of(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// Shared reports whether Of shares the memory.
const Shared = true
