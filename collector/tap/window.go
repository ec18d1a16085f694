package tap

import (
	"math/bits"
	"slices"
)

// A history is what a later call of the same chain may begin with: the prompt of a call,
// and its output behind it.
type history struct {
	tokens IDs
	prompt int      // how many of them are the prompt
	root   bool     // the call was written whole
	uses   int      // by calls of other chains, of a root; the encoder's
	sums   []uint64 // of the first block, of the first two, …; the encoder's
}

// A window holds the latest histories of a segment, by the number of their call. The encoder
// and the decoder have one each. Both drop the same histories, or the decoder fewer: where
// frames were lost, it does not know what would have replaced a history.
type window struct {
	byNumber map[uint64]history
	order    []uint64 // numbers that were added, ascending; some are dropped already
	tokens   int      // of all histories
}

// windowTokens is the most tokens that the histories of a window have: 18 MiB of memory, if the
// vocabulary has 152,000. It takes a thousand chains of 8,000 tokens. A call whose history is
// gone is written whole.
const windowTokens = 8 << 20

// add adds the history of call n, which must have a higher number than all before.
func (w *window) add(n uint64, h history) {
	if w.byNumber == nil {
		w.byNumber = map[uint64]history{}
	}
	w.byNumber[n] = h
	w.order = append(w.order, n)
	w.tokens += h.tokens.Len()
}

// drop removes a history.
func (w *window) drop(n uint64) {
	h := w.byNumber[n]
	w.tokens -= h.tokens.Len()
	delete(w.byNumber, n)
}

// oldest returns the number of the oldest history, or false where there is none.
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

// extends reports whether a prompt that begins with the first shared tokens of h may be the
// next one of the same chain.
func (h history) extends(prompt []int32, shared int) bool {
	return shared >= h.prompt && len(prompt) > h.prompt
}

// replaced reports whether a call that begins with the first shared tokens of h takes the
// place of h: it has some of h's output, and nobody else will begin like h.
func (h history) replaced(shared int) bool { return !h.root && shared > h.prompt }

// begins returns with how many tokens of h the prompt begins.
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

// block is how many tokens go into one sum. A prompt is looked up by the sums of its
// beginnings that are whole blocks. How far it agrees is compared token by token.
const block = 64

// seed and factor are those of sum.
const (
	seed   = 0x9e3779b97f4a7c15
	factor = 0xff51afd7ed558ccd
)

// sum goes on with the sum of a list of tokens. It says where to look, and finds mistakes;
// nothing relies on it to tell lists apart.
func sum(h uint64, tokens []int32) uint64 {
	for _, id := range tokens {
		h = (bits.RotateLeft64(h, 5) ^ uint64(uint32(id))) * factor
	}
	return h
}

// maxUses is how many other chains may begin like a root. A call refers to the one before it
// in its chain, or else to a root: if a frame is damaged, the rest of its chain is lost with
// it, and so many chains at most. Without that, the whole segment would hang on the first
// call with its system prompt. The price is one whole prompt in so many chains.
const maxUses = 16

// A finder finds the history with which a prompt begins. The encoder has one.
type finder struct {
	window
	latest map[uint64]uint64 // by the sum of its blocks, the latest call that begins with them
	roots  map[uint64]uint64 // the same of roots that may still be used
}

// find returns the number of the call with whose history the prompt is to begin, how many
// tokens agree, and the sums of the prompt's blocks. The number is 0 where there is none.
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

// longest returns the call that agrees in most blocks, and how many tokens agree. Among the
// latest calls with as many blocks, any will do.
func (f *finder) longest(calls map[uint64]uint64, prompt []int32, sums []uint64) (n uint64, shared int) {
	for _, sum := range slices.Backward(sums) {
		if n, ok := calls[sum]; ok {
			return n, f.byNumber[n].begins(prompt)
		}
	}
	return 0, 0
}

// removeSums removes the sums that lead to call n.
func removeSums(calls map[uint64]uint64, sums []uint64, n uint64) {
	for _, s := range sums {
		if calls[s] == n {
			delete(calls, s)
		}
	}
}

// appendSums appends the sums of the blocks that sums does not have yet.
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

// keep adds the history of call n, which has the tokens, after it dropped what the window has
// no room for.
func (f *finder) keep(n uint64, tokens []int32, h history) {
	if len(tokens) < block || len(tokens) > windowTokens {
		return
	}
	for f.tokens+len(tokens) > windowTokens {
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

// forget removes a history.
func (f *finder) forget(n uint64) {
	h := f.byNumber[n]
	removeSums(f.latest, h.sums, n)
	removeSums(f.roots, h.sums, n)
	f.drop(n)
}

// common returns how many tokens a and b begin with in common.
func common(a, b []int32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
