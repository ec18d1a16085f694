//go:build !linux

package mapped

// mapFile maps nothing: a file without a name is Linux's.
func mapFile(string, []byte) []byte { return nil }

func unmap([]byte) {}
