//go:build purego

package textview

// Of returns a copy of b as a string; see textview.go.
func Of(b []byte) string { return string(b) }

// Shared reports whether Of shares the memory.
const Shared = false
