//go:build !race

package bpe_test

const raceEnabled = false

// oneGoroutine is why tests are skipped under the race detector.
const oneGoroutine = "one goroutine: the race detector would see nothing, slowly"
