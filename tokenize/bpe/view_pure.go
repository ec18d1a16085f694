//go:build purego

package bpe

// stringOf returns a copy of b as a string.
func stringOf(b []byte) string { return string(b) }

// textViews reports that stringOf copies.
const textViews = false
