package enginesim

import "github.com/rollout-rl/rollout/collector/letta/lettasim/internal/sglang"

// PromptSeed returns a hash of a prompt: its ids and its length.
func PromptSeed(prompt []int32) uint64 {
	h := uint64(len(prompt))
	for _, id := range prompt {
		h = sglang.Mix(h ^ uint64(uint32(id)))
	}
	return h
}

// Logprob returns the log-probability of an id sampled at a position of the output. It is finite,
// at most 0, and depends only on the arguments. One in 64 is exactly 0.
func Logprob(seed uint64, position int, id int32) float32 { return sglang.Logprob(seed, position, id) }

// wordSeed returns a hash of a word.
func wordSeed(word string) uint64 {
	h := uint64(len(word)) << 32
	for i := range len(word) {
		h = sglang.Mix(h ^ uint64(word[i]))
	}
	return h
}

// plainFrom is the smallest number that Python prints without an exponent.
const plainFrom = 1e-4
