// Package mapped keeps long sorted lists out of the heap.
//
// A run uses such a list to look up by key whether a sample is done. The list takes 32 bytes per
// sample. Up to a size of [SpillBytes], or about 520,000 samples, the list is a slice in the heap.
// A longer list is written once to an unnamed file in the run's folder, and the file is mapped for
// reading. The kernel can then reclaim the list's pages when memory is short, and the garbage
// collector does not scan the list.
//
// The list is rebuilt from the log at every start, so it is never stale. The file has no name, so
// it disappears with the process. The list stays in the heap if the unnamed file cannot be created
// or written. This happens on systems other than Linux, on some network file systems, and on a full
// disk. With the build tag purego, the list always stays in the heap.
package mapped
