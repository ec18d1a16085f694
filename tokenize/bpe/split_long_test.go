//go:build differential

package bpe_test

// How many cases the comparisons of splits have.
const splitCases = 40_000

func splitAtoms(all int) int { return all }
