package session

import "slices"

// blockTokens is the number of tokens between two sums of a sequence.
const blockTokens = 128

// A sequence is a prompt and its output. Two sequences are compared by the sums of their beginnings,
// so that a comparison reads at most two blocks of tokens.
type sequence struct {
	prompt, output []int32
	sums           []uint64 // sums[i] is the sum of the first (i+1)*blockTokens tokens
	sum            uint64   // of all tokens
}

// A prefix identifies the first n tokens, or the first n blocks, of a sequence.
type prefix struct {
	n   int
	sum uint64
}

// rests contains for each number of tokens whether a sequence has that many after its whole blocks.
type rests [blockTokens]bool

// addToken returns the sum of a sequence with one more token.
func addToken(sum uint64, id int32) uint64 {
	sum = (sum ^ uint64(uint32(id)+1)) * 0x9e3779b97f4a7c15
	return sum ^ sum>>29
}

func newSequence(prompt, output []int32) sequence {
	s := sequence{prompt: prompt, output: output, sums: make([]uint64, 0, (len(prompt)+len(output))/blockTokens)}
	n := 0
	for _, part := range [2][]int32{prompt, output} {
		for _, id := range part {
			s.sum = addToken(s.sum, id)
			if n++; n%blockTokens == 0 {
				s.sums = append(s.sums, s.sum)
			}
		}
	}
	return s
}

// blocks identifies the first n whole blocks.
func (s *sequence) blocks(n int) prefix {
	if n == 0 {
		return prefix{}
	}
	return prefix{n, s.sums[n-1]}
}

func (s *sequence) len() int { return len(s.prompt) + len(s.output) }

func (s *sequence) at(i int) int32 {
	if i < len(s.prompt) {
		return s.prompt[i]
	}
	return s.output[i-len(s.prompt)]
}

// common returns the number of tokens that the prompt and the sequence have in common at their
// beginning. It relies on the sums.
func (s *sequence) common(next *sequence) int {
	limit := min(s.len(), len(next.prompt))
	blocks := limit / blockTokens
	// The sums are equal up to some block, and differ after it.
	lo, hi := 0, blocks
	for lo < hi {
		if mid := (lo + hi + 1) / 2; s.sums[mid-1] == next.sums[mid-1] {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	n := lo * blockTokens
	for n < limit && s.at(n) == next.prompt[n] {
		n++
	}
	return n
}

// extends reports whether the prompt of next begins with the whole sequence and is longer. It
// compares every token. A sequence without a prompt or without an output proves nothing.
func (s *sequence) extends(next *sequence) bool {
	n := len(s.prompt)
	return n > 0 && len(s.output) > 0 && len(next.prompt) > s.len() && slices.Equal(next.prompt[:n], s.prompt) && slices.Equal(next.prompt[n:s.len()], s.output)
}
