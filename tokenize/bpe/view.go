//go:build !purego

package bpe

import "unsafe"

// stringOf returns b as a string without copying it. The result is valid until b
// changes. Composed text lives in a buffer of the encoder; the copy would be its
// only allocation.
func stringOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// textViews says that stringOf does not copy.
const textViews = true
