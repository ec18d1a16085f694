//go:build !purego

// Package textview reads bytes as a string.
package textview

import "unsafe"

// Of returns b as a string that shares its memory and is valid until b changes, so that decoding
// into a reused reply and encoding composed text do not allocate. With the tag purego it copies.
func Of(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// Shared reports whether Of shares the memory.
const Shared = true
