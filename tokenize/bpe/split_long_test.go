//go:build differential

package bpe_test

// The number of cases in the comparisons of splits.
const splitCases = 40_000

func splitAtoms(all int) int { return all }
