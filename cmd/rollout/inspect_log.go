package main

import (
	"fmt"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

// The parts of inspect that need only the commit log.

// unshownOf returns the counts of calls that no answer shows, by sample key, for the attempts that
// count.
func unshownOf(log *sink.Log) map[string]tokenize.Unshown {
	all := map[string]tokenize.Unshown{}
	for i := range log.Commits {
		for _, s := range log.Commits[i].Samples {
			if s.Unshown != (tokenize.Unshown{}) {
				all[s.Key] = s.Unshown
			} else if len(all) > 0 {
				delete(all, s.Key)
			}
		}
	}
	return all
}

func runTotals(log *sink.Log) string {
	var rows, failures int64
	var tokens sink.Tokens
	for s := range log.Shards(sink.KindData) {
		rows += s.Rows
		tokens.Total += s.Tokens.Total
		tokens.Trainable += s.Tokens.Trainable
	}
	for s := range log.Shards(sink.KindFailures) {
		failures += s.Rows
	}
	return fmt.Sprintf("the run has %d samples in its data with %s rows, %s tokens, %s of them trained; and %s failure rows",
		len(log.Done()), format.Count(rows), format.Count(tokens.Total), format.Percent(tokens.Trainable, tokens.Total), format.Count(failures))
}
