//go:build !failpoint

package failpoint

// Enabled reports whether the program was built with the tag.
const Enabled = false

// Hit does nothing without the tag.
func Hit(Name) {}
