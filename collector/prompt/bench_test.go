package prompt_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/tokenize"
)

// rollout generates a life of one send with about the given number of tokens. Each call but the last
// has one tool call, and only the last has a trace.
func rollout(tb testing.TB, model *prompt.Model, seed uint64, calls, tokens int, keep bool) *knownLife {
	tb.Helper()
	words := tokens * 2 / (9 * calls) // of each of two texts: a word with its separator is some 2.2 tokens
	known := madeUp(tb, model, seed, plan{sends: []int{calls}, tools: 1, keep: keep, words: words})
	last := known.memory.steps[0][calls-1].ID
	maps.DeleteFunc(known.memory.traces, func(id string, _ *letta.ProviderTrace) bool { return id != last })
	return known
}

func traceOf(tb testing.TB, request, response string) *letta.ProviderTrace {
	tb.Helper()
	return must(letta.Read[letta.ProviderTrace](`{"request_json":` + request + `,"response_json":` + response + "}"))(tb)
}

var syllables = [...]string{"ba", "con", "der", "fi", "gre", "hol", "in", "ju", "ka", "lor", "mun", "ne", "op", "pra", "qui", "rest", "sta", "tion", "ul", "ver", "wex", "yl", "zon"}

func prose(r *rand.Rand, n int) string {
	list := [...]string{
		"the", "a", "of", "server", "token", "and", "call", "which", "prompt", "is", "renders", "exactly", "history", "was", "in",
		"func", "return", "if", "nil", "err", "count", "2048", "0.5", "path/to/file.go", "however", "because", "model", "sampled", "tools", "we",
	}
	var s strings.Builder
	for i := range n {
		if i > 0 {
			s.WriteString([...]string{" ", " ", " ", " ", ", ", ". ", "\n"}[r.IntN(7)])
		}
		if r.IntN(4) > 0 {
			s.WriteString(list[r.IntN(len(list))])
			continue
		}
		for range 1 + r.IntN(3) { // a word that the tokenizer has not seen before
			s.WriteString(syllables[r.IntN(len(syllables))])
		}
	}
	return s.String()
}

// BenchmarkRebuild renders, encodes and verifies all prompts of a rollout.
func BenchmarkRebuild(b *testing.B) {
	model := qwen3(b)
	for _, bench := range []struct {
		calls         int
		keep, answers bool
	}{{10, true, false}, {10, true, true}, {10, false, false}, {5, true, false}, {2, true, false}, {2, true, true}} {
		b.Run(fmt.Sprintf("calls=%d/tokens=8k/reasoning=%v/answers=%v", bench.calls, bench.keep, bench.answers), func(b *testing.B) {
			var lives []*knownLife
			for seed := range uint64(8) {
				lives = append(lives, rollout(b, model, seed, bench.calls, 7500+7500/bench.calls, bench.keep))
			}
			r := prompt.NewRebuilder(model, true, true)
			if bench.answers {
				r.Answers()
			}
			b.ReportAllocs()
			tokens, n := 0, 0
			for b.Loop() {
				known := lives[n%len(lives)]
				n++
				calls := known.rebuilt(b, r)
				last := &calls[len(calls)-1]
				if last.Grade != tokenize.CountVerified {
					b.Fatal(last.Note)
				}
				tokens = len(last.PromptIDs) + len(last.OutputIDs)
			}
			b.ReportMetric(float64(tokens), "tokens")
		})
	}
}
