// Package mapped keeps long sorted lists out of the heap.
//
// A run looks up by key whether each sample is done. The list has 32 bytes per sample. Up to
// [SpillBytes], some hundred thousand samples, it is a slice. A longer list is written once to an
// unnamed file in the run's folder and mapped for reading. The kernel can then reclaim its pages
// when memory is short, and the garbage collector does not see them.
//
// The list is rebuilt from the log at every start, so it is never stale. The file has no name, so
// it disappears with the process. The list stays in the heap with the build tag purego, or if the
// unnamed file cannot be created: on systems other than Linux, on some network file systems, or on
// a full disk.
package mapped
