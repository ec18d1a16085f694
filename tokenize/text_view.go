//go:build !purego

package tokenize

import "unsafe"

// stringView returns b as a string that shares its memory, so that decoding into a reused Reply
// does not allocate. The strings of a Turn are therefore valid only until the next use of its
// Reply. text_view_pure.go copies instead, with one allocation per non-empty text.
func stringView(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// textViews reports that stringView does not copy.
const textViews = true
