//go:build !purego

package tokenize

import "unsafe"

// stringView returns the bytes of b as a string that shares their memory, so that
// a reused Reply decodes without a single allocation; text_view_pure.go copies
// instead, one allocation per non-empty text.
//
// The strings of a Turn are therefore valid only until its Reply is used again, as
// Turn says.
func stringView(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// textViews says that stringView does not copy.
const textViews = true
