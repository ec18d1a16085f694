// Package mapped keeps long sorted lists out of the heap.
//
// What a run has done is looked up by key for every sample: 20 and 32 bytes each. Up to
// some hundred thousand samples that is a slice. Beyond [SpillBytes] the sorted list is
// written once to a file without a name in the folder of the run, and mapped for
// reading: the kernel may take its pages back whenever memory is short, and the garbage
// collector does not see it.
//
// The list is built anew at every start, from the log that it indexes, so it is never
// stale. The file has no name, so it goes with the process, however that ends. Where
// there is no such file (other systems than Linux, some network file systems, a full
// disk), and in a program built with the tag purego, the list stays in the heap.
package mapped
