//go:build !purego

// Package textview converts bytes to a string without copying them.
package textview

import "unsafe"

// Of returns a string that shares the memory of b. The string is valid until b changes. Sharing the
// memory avoids an allocation each time a reused Reply is decoded or normalized text is encoded.
// With the build tag purego, Of copies b instead.
func Of(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// Shared is true because Of shares the memory of its argument.
const Shared = true
