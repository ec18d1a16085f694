package continuity_test

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/tap/continuity"
)

func draws(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 3))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// FuzzWorld proves that no agent gets another's tokens, and that only sampled turns change.
func FuzzWorld(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(draws(seed, 400))
	}
	f.Fuzz(func(t *testing.T, draw []byte) {
		newWorld(t, draw[:min(len(draw), 800)], false).run()
	})
}

// TestWorlds runs random worlds, and requires that every reason occurs.
func TestWorlds(t *testing.T) {
	t.Parallel()
	seen := map[continuity.Reason]int{}
	for seed := range uint64(300) {
		w := newWorld(t, draws(seed, 600), false)
		w.run()
		for r, n := range w.seen {
			seen[r] += n
		}
	}
	t.Log(seen)
	for r := range continuity.Reasons {
		if seen[r] == 0 && r != continuity.ReasonForm && r != continuity.ReasonLong {
			t.Errorf("no prompt was decided as %v", r)
		}
	}
}

// TestTameWorlds proves that if the server only renders differently, every prompt continues the
// engine's own tokens until the user speaks.
func TestTameWorlds(t *testing.T) {
	t.Parallel()
	seen := map[continuity.Reason]int{}
	for seed := range uint64(50) {
		w := newWorld(t, draws(seed, 400), true)
		w.run()
		for _, a := range w.agents {
			if a.waits && len(a.calls) > 0 {
				w.answer(a)
			}
			for k := range a.calls[:max(0, len(a.calls)-1)] {
				before, next := a.calls[k], a.calls[k+1]
				if !callPattern.MatchString(decode(t, w.tok, before.Output)) {
					continue // the user speaks: sampled tokens are not restored
				}
				n := len(before.Prompt)
				if common(next.Prompt, before.Prompt) < n || common(next.Prompt[n:], before.Output) < len(before.Output) {
					t.Fatalf("seed %d, %s: call %d forks:\n%s\nbefore:\n%s\n%s", seed, a.name, k+1,
						decode(t, w.tok, next.Prompt), decode(t, w.tok, before.Prompt), decode(t, w.tok, before.Output))
				}
			}
		}
		for r, n := range w.seen {
			seen[r] += n
		}
	}
	t.Log(seen)
}

// FuzzPrint compares any two texts. A recognized print must also be one for the oracle.
func FuzzPrint(f *testing.F) {
	f.Add("<think>\nx\n</think>\n\n"+strings.TrimSuffix(call, "<|im_end|>"), strings.TrimSuffix(call, "<|im_end|>"))
	f.Add("<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":[1e3,\"\\u00e9\"]}}</tool_call>", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1000.0, \"é\"]}}\n</tool_call>")
	f.Add("five\n", "five")
	exponent := regexp.MustCompile(`[eE][+-]?\d{4}`)
	f.Fuzz(func(t *testing.T, output, printed string) {
		if exponent.MatchString(output + printed) {
			return // the oracle expands numbers
		}
		s := newScript(t, qwen3(t))
		ids := append(s.ids(output), imEnd)
		answered(s.table, s.ids(head), nil, ids)
		asked := slices.Concat(s.ids(head), s.ids(printed), []int32{imEnd}, s.ids(result))
		if sent, _ := decide(t, s.table, asked); sent != nil {
			checkSplice(t, "any text", asked, sent, [][]int32{ids})
		}
	})
}
