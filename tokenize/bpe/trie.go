package bpe

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/tokenize/bpe/internal/pattern"
)

// A trie finds added tokens in text: the leftmost match and, at that position, the longest match.
// If no token begins with the next two bytes, find needs only one bit test for the position.
type trie struct {
	edgeTable
	toks  []Added
	token []int32 // by node: index in toks, or -1
	// first and pair record the first byte and the first two bytes of each token. The field only is
	// the first byte if all tokens begin with the same byte, otherwise -1.
	first [256]bool
	pair  [1 << 10]uint64
	only  int
}

// newTrie returns a trie of tokens, or nil if there are no tokens. The parameter content holds the
// text of each token.
func newTrie(tokens []Added, content []string) *trie {
	if len(tokens) == 0 {
		return nil
	}
	t := &trie{edgeTable: newEdgeTable(), toks: tokens, token: []int32{-1}}
	for i, c := range content {
		t.first[c[0]] = true
		if len(c) == 1 {
			for b := range 256 {
				t.setPair(c[0], byte(b))
			}
		} else {
			t.setPair(c[0], c[1])
		}
		node := int32(0)
		for k := range len(c) {
			node = t.child(node, c[k])
		}
		t.token[node] = int32(i)
	}
	t.only = slices.Index(t.first[:], true)
	if slices.Contains(t.first[t.only+1:], true) {
		t.only = -1
	}
	return t
}

func (t *trie) setPair(a, b byte) {
	k := int(a)<<8 | int(b)
	t.pair[k>>6] |= 1 << (k & 63)
}

// child returns the node at the end of an edge. It adds the node if it is missing.
func (t *trie) child(node int32, b byte) int32 {
	next, ok := t.step(node, b)
	if !ok {
		next = int32(len(t.token))
		t.put(node, b, next)
		t.token = append(t.token, -1)
	}
	return next
}

// find returns the leftmost match at or after s[i]. If several tokens match at that position, find
// returns the longest token.
func (t *trie) find(s string, i int) (start, end int, tok *Added) {
	for ; i < len(s); i++ {
		if t.only >= 0 {
			k := strings.IndexByte(s[i:], byte(t.only))
			if k < 0 {
				return 0, 0, nil
			}
			i += k
		} else {
			for i < len(s) && !t.first[s[i]] {
				i++
			}
			if i == len(s) {
				return 0, 0, nil
			}
		}
		if i+1 < len(s) {
			if k := int(s[i])<<8 | int(s[i+1]); t.pair[k>>6]>>(k&63)&1 == 0 {
				continue
			}
		}
		if end, k := t.longest(s, i); k >= 0 {
			return i, end, &t.toks[k]
		}
	}
	return 0, 0, nil
}

// longest returns the end and the index of the longest token at s[i]. The index is -1 if there is
// no such token.
func (t *trie) longest(s string, i int) (end int, index int32) {
	node := int32(0)
	index = -1
	for ; i < len(s); i++ {
		next, ok := t.step(node, s[i])
		if !ok {
			break
		}
		node = next
		if t.token[node] >= 0 {
			end, index = i+1, t.token[node]
		}
	}
	return end, index
}

// wordBefore reports whether s ends with a word character. wordAfter reports whether s begins with
// a word character.
func wordBefore(s string) bool {
	r, n := utf8.DecodeLastRuneInString(s)
	return n > 0 && pattern.IsWord(r)
}

func wordAfter(s string) bool {
	r, n := utf8.DecodeRuneInString(s)
	return n > 0 && pattern.IsWord(r)
}

func trimmedEnd(s string) int {
	for len(s) > 0 {
		r, n := utf8.DecodeLastRuneInString(s)
		if !isSpace(r) {
			break
		}
		s = s[:len(s)-n]
	}
	return len(s)
}
