//go:build !differential

package bpe_test

// The number of cases in the comparisons of splits.
const splitCases = 2000

func splitAtoms(int) int { return 2 }
