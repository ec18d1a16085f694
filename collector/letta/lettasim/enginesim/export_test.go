package enginesim

import (
	"maps"
	"slices"
)

// Find is find for prompts of Qwen3.
func Find(text string) conversation { return find(text, "<tool_response>") }

// Scripts returns the names of the scripts.
func Scripts() []string { return slices.Sorted(maps.Keys(builtin())) }
