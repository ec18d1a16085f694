//go:build purego

package bpe

// stringOf returns b as a string.
func stringOf(b []byte) string { return string(b) }

// textViews says that stringOf copies.
const textViews = false
