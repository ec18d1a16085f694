//go:build !purego

package bpe

import "unsafe"

// stringOf returns b as a string without copying it. The result is valid until b changes. Composed
// text is in a buffer of the encoder, and a copy would be the encoder's only allocation.
func stringOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// textViews reports that stringOf does not copy.
const textViews = true
