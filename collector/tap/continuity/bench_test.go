package continuity_test

import (
	"slices"
	"testing"

	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/collector/tap/continuity"
	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
)

// BenchmarkPrompt decides about a prompt of 8,192 tokens after 32 calls: in a chain without drift,
// in one that was spliced before, and with a long output to compare.
func BenchmarkPrompt(b *testing.B) {
	for _, drift := range []string{"none", "before", "now"} {
		b.Run("tokens=8192/drift="+drift, func(b *testing.B) {
			table, asked, _ := longChain(b, drift)
			b.ReportAllocs()
			b.SetBytes(int64(4 * len(asked)))
			for b.Loop() {
				sent, _ := table.Prompt(asked)
				if (sent != nil) != (drift != "none") {
					b.Fatal("the prompt is spliced but should not be, or the reverse")
				}
				b.StopTimer()
				table.Answered(&tap.Call{Status: 500, Prompt: sent, Asked: asked}) // so that it can come again
				b.StartTimer()
			}
		})
	}
}

// BenchmarkAnswered adds the call of such a prompt.
func BenchmarkAnswered(b *testing.B) {
	table, asked, output := longChain(b, "before")
	sent, _ := table.Prompt(asked)
	b.ReportAllocs()
	for b.Loop() {
		answered(table, asked, sent, output)
	}
}

// longChain returns a table with 31 calls, and the next prompt.
func longChain(tb testing.TB, drift string) (table *continuity.Table, asked, output []int32) {
	tb.Helper()
	table = newTable(tb, qwen3(tb))
	tok := bpetest.Tokenizer(tb, "qwen3")
	text := func(s string) []int32 { return encode(tb, tok, s) }
	call := text("<tool_call>\n{\"name\": \"search\", \"arguments\": {\"query\": \"what is there to be found, and how often? \u00e9t\u00e9\", \"limit\": 100}}\n</tool_call><|im_end|>")
	think := slices.Concat(text("<think>\nI look it up, because nothing that was said tells it.\n</think>\n\n"), call)
	answer := text("\n<|im_start|>user\n<tool_response>\n")
	for len(answer) < 140 {
		answer = append(answer, text(" one more line of the result")...)
	}
	answer = append(answer, text("\n</tool_response><|im_end|>\n<|im_start|>assistant\n")...)
	asked = text("<|im_start|>system\n")
	for len(asked)+32*(len(call)+len(answer)) < 8192 {
		asked = append(asked, 16)
	}
	asked = append(asked, text("<|im_end|>\n<|im_start|>user\nGo.<|im_end|>\n<|im_start|>assistant\n")...)
	for k := range 32 {
		output = call
		if drift == "before" && k < 31 || drift == "now" && k == 31 {
			output = think
		}
		sent, _ := table.Prompt(asked)
		answered(table, asked, sent, output)
		asked = slices.Concat(asked, call, answer)
	}
	return table, asked, call
}
