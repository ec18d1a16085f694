package bpe_test

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/bpe/internal/pattern"
)

// The slow, obvious tokenizer, without a normalizer. It searches for merges one at a time, and tries
// patterns and added tokens at every position. Package pattern compares a match with backtracking.
type slowTokenizer struct {
	patterns []*pattern.Pattern
	vocab    map[string]int32
	rank     func(a, b string) int // of a merge, or math.MaxInt
	ignore   bool
	added    [2][]bpe.Added
}

func compilePattern(tb testing.TB, expr string) *pattern.Pattern {
	tb.Helper()
	p, err := pattern.Compile(expr)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func newSlowTokenizer(tb testing.TB, file []byte) *slowTokenizer {
	tb.Helper()
	var f struct {
		Added        []bpe.Added `json:"added_tokens"`
		PreTokenizer struct {
			Pretokenizers []struct {
				Pattern struct{ Regex string }
			}
		} `json:"pre_tokenizer"`
		Model struct {
			Vocab        map[string]int32
			Merges       []json.RawMessage
			IgnoreMerges bool `json:"ignore_merges"`
		}
	}
	if err := json.Unmarshal(file, &f); err != nil {
		tb.Fatal(err)
	}
	ranks := map[[2]string]int{}
	s := &slowTokenizer{vocab: f.Model.Vocab, ignore: f.Model.IgnoreMerges, rank: func(a, b string) int {
		if r, ok := ranks[[2]string{a, b}]; ok {
			return r
		}
		return math.MaxInt
	}}
	for _, p := range f.PreTokenizer.Pretokenizers {
		if p.Pattern.Regex != "" {
			s.patterns = append(s.patterns, compilePattern(tb, p.Pattern.Regex))
		}
	}
	for i, raw := range f.Model.Merges {
		var pair [2]string
		if json.Unmarshal(raw, &pair) != nil {
			var line string
			if err := json.Unmarshal(raw, &line); err != nil {
				tb.Fatal(err)
			}
			pair[0], pair[1], _ = strings.Cut(line, " ")
		}
		ranks[pair] = i
	}
	for _, a := range f.Added {
		pass := 0
		if a.Normalized {
			pass = 1
		}
		s.added[pass] = append(s.added[pass], a)
	}
	return s
}

func (s *slowTokenizer) encode(text string) []int32 {
	return s.cut(strings.ToValidUTF8(text, "\ufffd"), 0)
}

// cut finds the added tokens of a pass: the leftmost, then the longest.
func (s *slowTokenizer) cut(text string, pass int) []int32 {
	if pass == len(s.added) {
		return s.split(text)
	}
	for at := range len(text) {
		best := bpe.Added{}
		for _, a := range s.added[pass] {
			if len(a.Content) > len(best.Content) && strings.HasPrefix(text[at:], a.Content) {
				best = a
			}
		}
		if best.Content != "" {
			ids := append(s.cut(text[:at], pass+1), best.ID)
			return append(ids, s.cut(text[at+len(best.Content):], pass)...)
		}
	}
	return s.cut(text, pass+1)
}

func (s *slowTokenizer) split(text string) []int32 {
	var ids []int32
	for _, piece := range s.pretokens(text) {
		ids = append(ids, s.merge(piece)...)
	}
	return ids
}

func (s *slowTokenizer) pretokens(text string) []string {
	pieces := []string{text}
	for _, p := range s.patterns {
		var next []string
		for _, piece := range pieces {
			gap := 0
			for at := 0; at < len(piece); {
				end := p.End(piece, at)
				if end == at {
					_, size := utf8.DecodeRuneInString(piece[at:])
					at += size
					continue
				}
				if gap < at {
					next = append(next, piece[gap:at])
				}
				next = append(next, piece[at:end])
				at, gap = end, end
			}
			if gap < len(piece) {
				next = append(next, piece[gap:])
			}
		}
		pieces = next
	}
	return pieces
}

func (s *slowTokenizer) merge(word string) []int32 {
	var parts []string
	for _, b := range []byte(word) {
		parts = append(parts, spell(b))
	}
	if id, ok := s.vocab[strings.Join(parts, "")]; ok && s.ignore {
		return []int32{id}
	}
	var ids []int32
	for _, p := range mergePairs(parts, s.rank) {
		ids = append(ids, s.vocab[p])
	}
	return ids
}

// mergePairs merges the neighbors with the lowest rank, the leftmost first, until the rank of all is
// MaxInt.
func mergePairs(parts []string, rank func(a, b string) int) []string {
	ranks := make([]int, max(0, len(parts)-1)) // of a part and the next one
	for i := range ranks {
		ranks[i] = rank(parts[i], parts[i+1])
	}
	for len(ranks) > 0 {
		at := slices.Index(ranks, slices.Min(ranks))
		if ranks[at] == math.MaxInt {
			break
		}
		parts[at] += parts[at+1]
		parts, ranks = slices.Delete(parts, at+1, at+2), slices.Delete(ranks, at, at+1)
		for i := max(0, at-1); i < min(at+1, len(ranks)); i++ {
			ranks[i] = rank(parts[i], parts[i+1])
		}
	}
	return parts
}

// spellings has each byte in the byte-level alphabet, as GPT-2 defines it.
var spellings = func() (table [256]string) {
	next := rune(256)
	for c := range rune(256) {
		table[c] = string(c)
		if '!' <= c && c <= '~' || '¡' <= c && c <= '¬' || '®' <= c && c <= 'ÿ' {
			continue
		}
		table[c] = string(next)
		next++
	}
	return table
}()

func spell(b byte) string { return spellings[b] }
