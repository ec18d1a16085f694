// Package mapped keeps long sorted lists out of the heap.
//
// For every sample, a run looks up by key whether it is done: 32 bytes per entry. Up to some
// hundred thousand samples the list is a slice. Beyond [SpillBytes] it is written once to an unnamed
// file in the run's folder and mapped for reading. The kernel can then reclaim its pages when memory
// is short, and the garbage collector does not see them.
//
// The list is rebuilt from the log at every start, so it is never stale. The file has no name, so it
// disappears with the process. The list stays in the heap with the build tag purego, or if there is no
// such file: on systems other than Linux, on some network file systems, on a full disk.
package mapped
