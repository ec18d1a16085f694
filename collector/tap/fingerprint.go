package tap

import (
	"encoding/binary"
	"hash/maphash"
	"math"

	"github.com/rollout-rl/rollout/tokenize"
)

// A fingerprint identifies the sampled ids of a call and the bits of their log-probabilities. It
// consists of two 64-bit keyed hashes. Calls with equal fingerprints are assumed to have the same
// ids and bits.
type fingerprint [2]uint64

// A digest identifies the ids of a prompt. It also consists of two 64-bit keyed hashes.
type digest [2]uint64

// seeds contains the hash keys of one index.
type seeds [2]maphash.Seed

func newSeeds() seeds { return seeds{maphash.MakeSeed(), maphash.MakeSeed()} }

// of returns the fingerprint of a call. All unusable log-probabilities (see tokenize.UsableLogprob)
// are hashed as the same constant, because a server writes NaN and infinite values as null.
func (s *seeds) of(ids []int32, logprobs []float32) fingerprint {
	var h [2]maphash.Hash
	h[0].SetSeed(s[0])
	h[1].SetSeed(s[1])
	var room [1024]byte
	words := room[:0]
	for i, id := range ids {
		bits := uint32(math.MaxUint32) // the bits of a NaN that no engine returns
		switch {
		case i >= len(logprobs) || !tokenize.UsableLogprob(logprobs[i]):
		case logprobs[i] == 0:
			bits = 0 // the same for 0 and -0, because the sign can get lost in JSON
		default:
			bits = math.Float32bits(logprobs[i])
		}
		words = binary.LittleEndian.AppendUint32(words, uint32(id)) //nolint:gosec // only the bits of the id matter
		words = binary.LittleEndian.AppendUint32(words, bits)
		if len(words) == len(room) || i == len(ids)-1 {
			_, _ = h[0].Write(words)
			_, _ = h[1].Write(words)
			words = room[:0]
		}
	}
	return fingerprint{h[0].Sum64(), h[1].Sum64()}
}

const (
	// sure is the log-probability above which a token reveals nothing about its prompt. The
	// probability of such a token is above 0.999, so its log-probability is 0 or one of only a few
	// values close to 0.
	sure = -1e-3
	// tellingTokens is the number of less certain tokens that are enough to make a fingerprint
	// unique to a prompt. Each token's log-probability depends on all ids of the prompt. If two
	// prompts differ only in a name, a token can still have the same log-probability after both,
	// because of rounding to bf16. This does not happen for sixteen tokens.
	tellingTokens = 16
)

// telling reports whether no other prompt can produce these log-probabilities, so that they prove
// the prompt.
func telling(logprobs []float32) bool {
	n := 0
	for _, f := range logprobs {
		if f < sure && tokenize.UsableLogprob(f) {
			if n++; n == tellingTokens {
				return true
			}
		}
	}
	return false
}
