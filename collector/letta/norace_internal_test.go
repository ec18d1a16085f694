//go:build !race

package letta

const raceEnabled = false
