package bpe_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/tokenize/bpe"
)

// The slow, obvious tokenizer, without a normalizer. It matches patterns by backtracking, searches
// for merges one at a time, and tries added tokens at every position.
type slowTokenizer struct {
	patterns []matcher
	vocab    map[string]int32
	rank     map[[2]string]int
	ignore   bool
	added    [2][]bpe.Added
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
	s := &slowTokenizer{vocab: f.Model.Vocab, ignore: f.Model.IgnoreMerges, rank: map[[2]string]int{}}
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
		s.rank[pair] = i
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
	pieces := [][]rune{[]rune(text)}
	for _, p := range s.patterns {
		var next [][]rune
		for _, piece := range pieces {
			gap := 0
			for at := 0; at < len(piece); {
				end := -1
				p(piece, at, func(e int) bool { end = e; return true })
				if end <= at {
					at++
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
	var out []string
	for _, piece := range pieces {
		if len(piece) > 0 {
			out = append(out, string(piece))
		}
	}
	return out
}

func (s *slowTokenizer) merge(word string) []int32 {
	var parts []string
	for _, b := range []byte(word) {
		parts = append(parts, spell(b))
	}
	if id, ok := s.vocab[strings.Join(parts, "")]; ok && s.ignore {
		return []int32{id}
	}
	parts = mergePairs(parts, func(a, b string) int {
		if r, ok := s.rank[[2]string{a, b}]; ok {
			return r
		}
		return math.MaxInt
	})
	ids := make([]int32, len(parts))
	for i, p := range parts {
		ids[i] = s.vocab[p]
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

// A matcher calls then with each end of a match of s from at, best first, until then returns true.
type matcher func(s []rune, at int, then func(end int) bool) bool

type runeSet func(r rune) bool

// patternParser parses the subset of regular expressions that the patterns of tokenizers use.
type patternParser struct {
	tb   testing.TB
	s    []rune
	i    int
	fold bool
}

func compilePattern(tb testing.TB, pattern string) matcher {
	tb.Helper()
	p := &patternParser{tb: tb, s: []rune(pattern)}
	m := p.alternatives()
	if p.i != len(p.s) {
		tb.Fatalf("pattern %q: stopped at %d", pattern, p.i)
	}
	return m
}

func (p *patternParser) has(prefix string) bool {
	if strings.HasPrefix(string(p.s[p.i:]), prefix) {
		p.i += utf8.RuneCountInString(prefix)
		return true
	}
	return false
}

func (p *patternParser) alternatives() matcher {
	list := []matcher{p.sequence()}
	for p.has("|") {
		list = append(list, p.sequence())
	}
	return func(s []rune, at int, then func(int) bool) bool {
		return slices.ContainsFunc(list, func(m matcher) bool { return m(s, at, then) })
	}
}

func (p *patternParser) sequence() matcher {
	var list []matcher
	for p.i < len(p.s) && p.s[p.i] != '|' && p.s[p.i] != ')' {
		list = append(list, p.repeat(p.atom()))
	}
	var run func(list []matcher, s []rune, at int, then func(int) bool) bool
	run = func(list []matcher, s []rune, at int, then func(int) bool) bool {
		if len(list) == 0 {
			return then(at)
		}
		return list[0](s, at, func(e int) bool { return run(list[1:], s, e, then) })
	}
	return func(s []rune, at int, then func(int) bool) bool { return run(list, s, at, then) }
}

func (p *patternParser) repeat(m matcher) matcher {
	lo, hi := 1, 1
	switch {
	case p.has("?"):
		lo = 0
	case p.has("*"):
		lo, hi = 0, 1<<30
	case p.has("+"):
		hi = 1 << 30
	case p.has("{1,3}"):
		hi = 3
	default:
		return m
	}
	var run func(n int, s []rune, at int, then func(int) bool) bool
	run = func(n int, s []rune, at int, then func(int) bool) bool {
		if n < hi && m(s, at, func(e int) bool { return run(n+1, s, e, then) }) {
			return true
		}
		return n >= lo && then(at)
	}
	return func(s []rune, at int, then func(int) bool) bool { return run(0, s, at, then) }
}

func (p *patternParser) atom() matcher {
	switch {
	case p.has("(?i:"):
		p.fold = true
		m := p.alternatives()
		p.fold = false
		p.has(")")
		return m
	case p.has("(?!"):
		m := p.alternatives()
		p.has(")")
		return func(s []rune, at int, then func(int) bool) bool {
			return !m(s, at, func(int) bool { return true }) && then(at)
		}
	}
	set := p.set()
	return func(s []rune, at int, then func(int) bool) bool {
		return at < len(s) && set(s[at]) && then(at+1)
	}
}

func (p *patternParser) set() runeSet {
	if !p.has("[") {
		return p.single()
	}
	not := p.has("^")
	var union []runeSet
	var and runeSet
	for !p.has("]") {
		if p.has("&&") {
			and = p.set()
			continue
		}
		from := p.s[p.i]
		set := p.single()
		if from != '\\' && p.s[p.i] == '-' && p.s[p.i+1] != ']' {
			p.i++
			to := p.s[p.i]
			p.i++
			set = func(r rune) bool { return from <= r && r <= to }
		}
		union = append(union, set)
	}
	return func(r rune) bool {
		in := slices.ContainsFunc(union, func(s runeSet) bool { return s(r) })
		return in != not && (and == nil || and(r))
	}
}

func (p *patternParser) single() runeSet {
	c := p.s[p.i]
	p.i++
	if c != '\\' {
		fold := p.fold
		return func(r rune) bool {
			if r == c {
				return true
			}
			for f := unicode.SimpleFold(c); fold && f != c; f = unicode.SimpleFold(f) {
				if f == r {
					return true
				}
			}
			return false
		}
	}
	c = p.s[p.i]
	p.i++
	switch c {
	case 'r':
		return func(r rune) bool { return r == '\r' }
	case 'n':
		return func(r rune) bool { return r == '\n' }
	case 's', 'S':
		return func(r rune) bool { return isSpace(r) == (c == 's') }
	case 'p':
		end := p.i + slices.Index(p.s[p.i:], '}')
		name := string(p.s[p.i+1 : end])
		p.i = end + 1
		if name == "Han" {
			return func(r rune) bool { return categories(p.tb).han[r] }
		}
		return func(r rune) bool { return strings.HasPrefix(categories(p.tb).of[r], name) }
	}
	return func(r rune) bool { return r == c }
}

func isSpace(r rune) bool {
	return '\t' <= r && r <= '\r' || r == 0x85 || r == ' ' || r == 0xA0 || r == 0x1680 || 0x2000 <= r && r <= 0x200A ||
		r == 0x2028 || r == 0x2029 || r == 0x202F || r == 0x205F || r == 0x3000
}

type categoryTable struct {
	of  []string // general category of each code point
	han map[rune]bool
}

var readCategories = sync.OnceValues(func() (*categoryTable, error) {
	t := &categoryTable{of: make([]string, 0x110000), han: map[rune]bool{}}
	for file, set := range map[string]func(r rune, category string){
		"gc16.txt":  func(r rune, category string) { t.of[r] = category },
		"han16.txt": func(r rune, _ string) { t.han[r] = true },
	} {
		raw, err := os.ReadFile(filepath.Join("internal", "ucd", file))
		if err != nil {
			return nil, err
		}
		for line := range bytes.Lines(raw) {
			var a, b rune
			var category string
			if n, err := fmt.Sscanf(string(line), "%x %x %s", &a, &b, &category); n < 2 {
				return nil, err
			}
			for ; a <= b; a++ {
				set(a, category)
			}
		}
	}
	return t, nil
})

func categories(tb testing.TB) *categoryTable {
	tb.Helper()
	t, err := readCategories()
	if err != nil {
		tb.Fatal(err)
	}
	return t
}
