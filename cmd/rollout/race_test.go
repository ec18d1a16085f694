//go:build race

package main

// raceEnabled says that the race detector is on: memory and time say nothing then.
const raceEnabled = true
