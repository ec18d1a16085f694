package enginesim

import "github.com/rollout-rl/rollout/collector/letta/lettasim/internal/sglang"

// PromptSeed returns a hash of the ids in a prompt.
func PromptSeed(prompt []int32) uint64 {
	h := uint64(len(prompt))
	for _, id := range prompt {
		h = sglang.Mix(h ^ uint64(uint32(id)))
	}
	return h
}

// Logprob returns the log-probability of an id that was sampled at a position in the output. The
// result is finite, at most 0, and depends only on the arguments. One value in 64 is exactly 0.
func Logprob(seed uint64, position int, id int32) float32 { return sglang.Logprob(seed, position, id) }

func wordSeed(word string) uint64 {
	h := uint64(len(word)) << 32
	for i := range len(word) {
		h = sglang.Mix(h ^ uint64(word[i]))
	}
	return h
}

// plainFrom is the smallest positive number that Python prints without an exponent.
const plainFrom = 1e-4
