//go:build !failpoint

package failpoint

// Hit does nothing without the build tag failpoint.
func Hit(Name) {}
