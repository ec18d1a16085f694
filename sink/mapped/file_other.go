//go:build !linux || purego

package mapped

// canMap is false: a file without a name is Linux's, and what is read from a mapping takes
// package unsafe.
const canMap = false

func mapFile(string, []byte) []byte { return nil }

func unmap([]byte) {}
