//go:build !differential

package bpe_test

// How many cases the comparisons of splits have.
const splitCases = 2000

func splitAtoms(int) int { return 2 }
