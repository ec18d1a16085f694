//go:build !failpoint

package failpoint

// Enabled reports whether the program was built with the tag.
const Enabled = false

// Hit says that the process is at that step now.
func Hit(Name) {}
