//go:build !purego

package mapped

import "unsafe"

// bytesOf is the memory of items; it holds what they hold.
func bytesOf[T any](items []T) []byte {
	if len(items) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(items))), len(items)*int(unsafe.Sizeof(items[0])))
}

// itemsOf reads n items off memory that bytesOf gave. A mapping begins at a page, so
// every type is aligned in it.
func itemsOf[T any](mem []byte, n int) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(mem))), n)
}
