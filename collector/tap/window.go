package tap

import (
	"cmp"
	"math/bits"
	"slices"
)

// A history contains the prompt of a call, followed by the output. The prompt of a later call can
// begin with these tokens.
type history struct {
	tokens IDs
	prompt int      // the number of tokens in the prompt
	root   bool     // the prompt was written without a reference to an earlier call
	uses   int      // how many other chains refer to this root; only the encoder sets it
	sums   []uint64 // sums[i] is the sum of the first i+1 blocks; only the encoder sets it
}

// A window contains the latest histories of a segment, by call number. The encoder and the decoder
// each have a window, and both drop the same histories. If frames are lost, the decoder drops fewer
// histories, because it does not know which histories the lost calls replaced.
type window struct {
	byNumber map[uint64]history
	order    []uint64 // the numbers in ascending order, including dropped numbers
	tokens   int      // the number of tokens in all histories
}

// windowTokens is the maximum number of tokens in an encoder's window. With a vocabulary of 152,000
// tokens, this number of tokens takes 18 MiB of memory. It is enough for a thousand chains of 8,000
// tokens each.
const windowTokens = 8 << 20

// add adds the history of call n. Each number must be higher than the previous one.
func (w *window) add(n uint64, h history) {
	if w.byNumber == nil {
		w.byNumber = map[uint64]history{}
	}
	w.byNumber[n] = h
	w.order = append(w.order, n)
	w.tokens += h.tokens.Len()
}

func (w *window) drop(n uint64) {
	h := w.byNumber[n]
	w.tokens -= h.tokens.Len()
	delete(w.byNumber, n)
}

// oldest returns the number of the oldest history, or false if the window is empty.
func (w *window) oldest() (uint64, bool) {
	for i, n := range w.order {
		if _, ok := w.byNumber[n]; ok {
			w.order = slices.Delete(w.order, 0, i)
			return n, true
		}
	}
	w.order = w.order[:0]
	return 0, false
}

// extends reports whether a prompt can be the next prompt in the chain of h. shared is the number
// of tokens that the prompt and h have in common at the start.
func (h history) extends(prompt []int32, shared int) bool {
	return shared >= h.prompt && len(prompt) > h.prompt
}

// replaced reports whether a later call replaces h. shared is the number of tokens that the call
// and h have in common at the start. A call that includes a part of the output in h replaces h,
// because no other call is then expected to continue h.
func (h history) replaced(shared int) bool { return !h.root && shared > h.prompt }

// begins returns the number of tokens that h and the prompt have in common at the start.
func (h history) begins(prompt []int32) int {
	rest := h.tokens
	n := min(len(prompt), rest.Len())
	for i, id := range prompt[:n] {
		if rest.Next() != id {
			return i
		}
	}
	return n
}

// block is the size of a block in tokens. A prompt is looked up by the sums of its complete blocks.
// The exact overlap is then determined token by token.
const block = 64

const (
	seed   = 0x9e3779b97f4a7c15
	factor = 0xff51afd7ed558ccd
)

// sum adds tokens to the checksum h. Different lists can have equal sums, so sums are used only for
// lookup and error detection.
func sum(h uint64, tokens []int32) uint64 {
	for _, id := range tokens {
		h = (bits.RotateLeft64(h, 5) ^ uint64(uint32(id))) * factor
	}
	return h
}

// maxUses is the maximum number of other chains that can refer to the same root. A call refers to
// the previous call in its chain or to a root. If a frame is damaged, the rest of its chain and at
// most maxUses other chains are lost. Without this limit, the whole segment would depend on the
// first call with a common system prompt. The cost of this limit is one complete prompt for every
// maxUses chains.
const maxUses = 16

// A finder finds the history with which a prompt begins. Only the encoder has a finder.
type finder struct {
	window
	most   int               // maximum number of tokens in the window; 0 means windowTokens
	latest map[uint64]uint64 // maps each sum to the latest call that begins with the summed blocks
	roots  map[uint64]uint64 // like latest, but only for roots with fewer than maxUses uses
}

// find returns the number of a call to which the prompt can refer, the number of shared tokens, and
// the sums of the prompt's blocks. If there is no such call, the call number is 0.
func (f *finder) find(prompt []int32) (n uint64, shared int, sums []uint64) {
	sums = appendSums(make([]uint64, 0, len(prompt)/block+4), prompt)
	if n, shared := f.longest(f.latest, prompt, sums); shared >= block && f.byNumber[n].extends(prompt, shared) {
		return n, shared, sums
	}
	n, shared = f.longest(f.roots, prompt, sums)
	if shared < block {
		return 0, 0, sums
	}
	h := f.byNumber[n]
	h.uses++
	f.byNumber[n] = h
	if h.uses == maxUses {
		removeSums(f.roots, h.sums, n)
	}
	return n, shared, sums
}

// longest returns the call that shares the most blocks with the prompt, and the number of shared
// tokens. If several calls share the same number of blocks, it returns one of them.
func (f *finder) longest(calls map[uint64]uint64, prompt []int32, sums []uint64) (n uint64, shared int) {
	for _, sum := range slices.Backward(sums) {
		if n, ok := calls[sum]; ok {
			return n, f.byNumber[n].begins(prompt)
		}
	}
	return 0, 0
}

func removeSums(calls map[uint64]uint64, sums []uint64, n uint64) {
	for _, s := range sums {
		if calls[s] == n {
			delete(calls, s)
		}
	}
}

// appendSums appends the missing sums for the blocks in tokens.
func appendSums(sums []uint64, tokens []int32) []uint64 {
	h := uint64(seed)
	if len(sums) > 0 {
		h = sums[len(sums)-1]
	}
	for at := len(sums) * block; at+block <= len(tokens); at += block {
		h = sum(h, tokens[at:at+block])
		sums = append(sums, h)
	}
	return sums
}

// keep adds the history of call n. tokens contains the same tokens as h. If the window is full,
// keep first drops the oldest histories.
func (f *finder) keep(n uint64, tokens []int32, h history) {
	most := cmp.Or(f.most, windowTokens)
	if len(tokens) < block || len(tokens) > most {
		return
	}
	for f.tokens+len(tokens) > most {
		oldest, _ := f.oldest()
		f.forget(oldest)
	}
	if f.latest == nil {
		f.latest, f.roots = map[uint64]uint64{}, map[uint64]uint64{}
	}
	h.sums = appendSums(h.sums, tokens)
	f.add(n, h)
	for _, s := range h.sums {
		f.latest[s] = n
		if h.root {
			f.roots[s] = n
		}
	}
}

func (f *finder) forget(n uint64) {
	h := f.byNumber[n]
	removeSums(f.latest, h.sums, n)
	removeSums(f.roots, h.sums, n)
	f.drop(n)
}

func common(a, b []int32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
