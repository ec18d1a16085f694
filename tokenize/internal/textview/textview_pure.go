//go:build purego

package textview

// Of returns a copy of b as a string; see textview.go.
func Of(b []byte) string { return string(b) }

// Shared is false because Of copies its argument.
const Shared = false
