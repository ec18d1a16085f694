//go:build !failpoint

package failpoint

// Hit does nothing without the tag.
func Hit(Name) {}
