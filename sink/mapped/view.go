//go:build !purego

package mapped

import "unsafe"

// bytesOf returns the bytes of items without copying them.
func bytesOf[T any](items []T) []byte {
	if len(items) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(items))), len(items)*int(unsafe.Sizeof(items[0])))
}

// itemsOf is the inverse of bytesOf. mem must contain n items. It can be a mapping, because
// mappings are page-aligned and therefore aligned for every type.
func itemsOf[T any](mem []byte, n int) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(mem))), n)
}
