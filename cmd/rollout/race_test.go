//go:build race

package main

// raceEnabled reports that the race detector is on. Memory and time mean nothing then.
const raceEnabled = true
