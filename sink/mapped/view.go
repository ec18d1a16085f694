//go:build !purego

package mapped

import "unsafe"

// bytesOf returns the memory of items without a copy.
func bytesOf[T any](items []T) []byte {
	if len(items) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(items))), len(items)*int(unsafe.Sizeof(items[0])))
}

// itemsOf returns n items of memory from bytesOf. A mapping is page-aligned, so it is aligned for
// every type.
func itemsOf[T any](mem []byte, n int) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(mem))), n)
}
