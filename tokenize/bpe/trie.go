package bpe

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/tokenize/bpe/internal/pattern"
)

// A trie finds added tokens in a text: the leftmost match, and of those the longest. A step is one
// probe of a hash table. Two bytes that begin no token cost one bit test.
type trie struct {
	toks  []Added
	edges []trieEdge // open addressing, length a power of two; free if key is 0
	token []int32    // by node: index in toks, or -1
	// first and pair are the bytes and pairs of bytes that begin a token. only is the first byte if
	// all tokens share it, otherwise -1.
	first [256]bool
	pair  [1 << 10]uint64
	only  int
}

type trieEdge struct {
	key  uint32 // (node+1)<<8 | byte
	node uint32
}

// newTrie returns a trie of tokens, or nil if there are none. content is the text of each token.
func newTrie(tokens []Added, content []string) *trie {
	if len(tokens) == 0 {
		return nil
	}
	t := &trie{toks: tokens, token: []int32{-1}}
	total := 1
	for _, c := range content {
		total += len(c)
	}
	size := 64
	for size < 2*total {
		size *= 2
	}
	t.edges = make([]trieEdge, size)
	for i, c := range content {
		t.first[c[0]] = true
		if len(c) == 1 {
			for b := range 256 {
				t.setPair(c[0], byte(b))
			}
		} else {
			t.setPair(c[0], c[1])
		}
		node := uint32(0)
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

func edgeSlot(key uint32, mask int) int { return int(key*0x9E3779B1>>7) & mask }

// child returns the node at the end of an edge, and adds it if it is missing.
func (t *trie) child(node uint32, b byte) uint32 {
	key, mask := (node+1)<<8|uint32(b), len(t.edges)-1
	i := edgeSlot(key, mask)
	for t.edges[i].key != 0 {
		if t.edges[i].key == key {
			return t.edges[i].node
		}
		i = (i + 1) & mask
	}
	t.edges[i] = trieEdge{key, uint32(len(t.token))}
	t.token = append(t.token, -1)
	return t.edges[i].node
}

// find returns the leftmost match at or after s[i], and the longest at that position.
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

// longest returns the end and index of the longest token at s[i], or index -1.
func (t *trie) longest(s string, i int) (end int, index int32) {
	node, mask := uint32(0), len(t.edges)-1
	index = -1
	for ; i < len(s); i++ {
		key := (node+1)<<8 | uint32(s[i])
		k := edgeSlot(key, mask)
		for t.edges[k].key != key && t.edges[k].key != 0 {
			k = (k + 1) & mask
		}
		if t.edges[k].key == 0 {
			break
		}
		node = t.edges[k].node
		if t.token[node] >= 0 {
			end, index = i+1, t.token[node]
		}
	}
	return end, index
}

// wordBefore and wordAfter report whether s ends, or begins, with a word character.
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
