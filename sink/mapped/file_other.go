//go:build !linux || purego

package mapped

// canMap is false because unnamed files require Linux, and access to a mapping requires package
// unsafe.
const canMap = false

func mapFile(string, []byte) []byte { return nil }

func unmap([]byte) {}
