package pattern

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/tokenize/bpe/internal/pattern/patterntest"
)

func mustCompile(tb testing.TB, expr string) (*Pattern, *node) {
	tb.Helper()
	p, err := Compile(expr)
	if err != nil {
		tb.Fatalf("Compile(%q): %v", expr, err)
	}
	return p, tree(tb, expr)
}

// tree returns what the backtracking matcher reads.
func tree(tb testing.TB, expr string) *node {
	tb.Helper()
	n, err := (&parser{s: expr}).alternatives()
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// checkText compares End and Next with the backtracking matcher at every character.
func checkText(t *testing.T, expr string, p *Pattern, n *node, text string) bool {
	t.Helper()
	ends := make([]int, len(text)+1)
	for i := range text {
		ends[i] = n.end(text, i)
		if got := p.End(text, i); got != ends[i] {
			t.Errorf("Compile(%q).End(%q, %d) = %d, want %d", expr, text, i, got, ends[i])
			return false
		}
		if p.Covers() && ends[i] == i {
			t.Errorf("Compile(%q).Covers() = true, but %q does not match at %d", expr, text, i)
			return false
		}
	}
	start, end := len(text), len(text)
	for i := len(text) - 1; i >= 0; i-- {
		if !utf8.RuneStart(text[i]) {
			continue
		}
		if ends[i] > i {
			start, end = i, ends[i]
		}
		if a, b := p.Next(text, i); a != start || b != end {
			t.Errorf("Compile(%q).Next(%q, %d) = %d, %d, want %d, %d", expr, text, i, a, b, start, end)
			return false
		}
	}
	return true
}

// TestRandom checks that random patterns match as a backtracking matcher does.
func TestRandom(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	accepted := 0
	for accepted < 2000 {
		expr := patterntest.Pattern(rng)
		p, err := Compile(expr)
		if err != nil {
			if _, ok := errors.AsType[*SyntaxError](err); !ok {
				t.Fatalf("Compile(%q): %v, want a SyntaxError", expr, err)
			}
			continue
		}
		accepted++
		n := tree(t, expr)
		for range 20 {
			if !checkText(t, expr, p, n, patterntest.Text(rng, 12)) {
				break
			}
		}
	}
}

// TestKnown checks that the patterns of models match as a backtracking matcher does, and that no
// text is read more than a few times.
func TestKnown(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 2))
	for name, expr := range patterntest.ModelPatterns {
		p, n := mustCompile(t, expr)
		if covers := !strings.HasPrefix(name, "deepseek"); p.Covers() != covers {
			t.Errorf("%s: Covers() = %v, want %v", name, p.Covers(), covers)
		}
		for range 500 {
			checkText(t, expr, p, n, patterntest.Text(rng, 30))
		}
	}
}

// TestLiteral checks that Literal gives no character a special meaning.
func TestLiteral(t *testing.T) {
	t.Parallel()
	p, err := Literal(`a.é`)
	if err != nil {
		t.Fatal(err)
	}
	if start, end := p.Next("abéaa.éa.e", 0); start != 5 || end != 9 {
		t.Errorf("Next = %d, %d, want 5, 9", start, end)
	}
	for _, text := range []string{"", strings.Repeat("a", 5000)} {
		if _, err := Literal(text); err == nil {
			t.Errorf("Literal(%.10q) succeeded", text)
		}
	}
}

// TestEveryCharacter checks that each character has the class of the sets that contain it.
func TestEveryCharacter(t *testing.T) {
	t.Parallel()
	for _, expr := range []string{`\p{L}`, `[^\s\p{Lu}一-龥]`, `[\p{L}&&[^\p{Han}]]`, `[\x{e0}-\x{1F600}]`, `.`, `\p{C}`, `\P{Nd}`} {
		p, n := mustCompile(t, expr)
		for r := range rune(utf8.MaxRune + 1) {
			if !utf8.ValidRune(r) {
				continue
			}
			s := string(r)
			if got, want := p.End(s, 0) > 0, n.set.has(kindOf(r), r); got != want {
				t.Fatalf("%s matches %U: %v, want %v", expr, r, got, want)
			}
		}
	}
}

func TestRefuse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		expr   string
		offset int
		what   string
	}{
		{``, 0, "matches the empty string"},
		{`a*`, 0, "matches the empty string"},
		{`a|(?!b)`, 0, "matches the empty string"},
		{`a**`, 2, "* after a repetition"},
		{`a*?b`, 1, "lazy"},
		{`(a?)+b`, 4, "can be empty"},
		{`(ab)++`, 4, "possessive"},
		{`a{1,2}?b`, 1, "lazy"},
		{`a{,2}`, 1, "repetition {"},
		{`a{2,1}`, 1, "repetition {"},
		{`a{2`, 1, "repetition {"},
		{`a{1001}`, 1, "repetition {"},
		{`a{-1}`, 1, "repetition {"},
		{`{`, 0, "unexpected {"},
		{`+`, 0, "unexpected +"},
		{`a|*`, 2, "unexpected *"},
		{`^a`, 0, "unexpected ^"},
		{`ab)`, 2, ") without an opening ("},
		{`(ab`, 0, "group without a closing )"},
		{`(?<n>a)`, 0, "group (?<n>a"},
		{`(?<=a)b`, 0, "group"},
		{`(?>a)`, 0, "group"},
		{`(?i)a`, 0, "group"},
		{`a(?!bc)`, 1, "lookahead of more"},
		{`a(?=b|c)`, 1, "lookahead of more"},
		{`a(?=b)+`, 6, "repeated lookahead"},
		{`[a`, 0, "class without a closing ]"},
		{`[]a]`, 0, "] as the first"},
		{`[a&&]`, 0, "&& with an empty operand"},
		{`[&&a]`, 1, "&& with an empty operand"},
		{`[[:alpha:]]`, 1, "POSIX"},
		{`[b-a]`, 1, "range"},
		{`[a-\d]`, 1, "range"},
		{`[\d-a]`, 1, "range"},
		{`[a-b-c]`, 4, "- after a range"},
		{`a\b`, 1, "escape"},
		{`\w+`, 0, "escape"},
		{`\1`, 0, "escape"},
		{`\K`, 0, "escape"},
		{`\`, 0, "escape"},
		{`\x8`, 0, "escape"},
		{`\xe4`, 0, "of a single byte"},
		{`\x{110000}`, 0, "escape"},
		{`\ud800`, 0, "escape"},
		{`\p{Greek}`, 0, "property"},
		{`\pL`, 0, "property"},
		{`\p{L`, 0, "property"},
		{`(?i:ß)`, 4, "case-insensitive"},
		{`(?i:\p{L})`, 4, "case-insensitive"},
		{`(?i:[a-z])`, 5, "case-insensitive"},
		{`(?i:ss)`, 5, "fold to one character with"},
		{`(?i:s[st])`, 5, "fold to one character with"},
		{`(?i:(?:s)(a|t))`, 9, "fold to one character with"},
		{`(?i:f)(?i:I)`, 6, "fold to one character with"},
		{`(?i:s){2}`, 6, "a case-insensitive repetition"},
		{`a*b|a`, 0, "quadratic"},
		{`a*b`, 0, "quadratic"},
		{`[^"]*"|.`, 0, "quadratic"},
		{`\s+x|\s`, 0, "quadratic"},
		{`\p{L}{1000}{1000}`, 0, "too large"},
		{"\xff", 0, "UTF-8"},
		{strings.Repeat("(", 100), 50, "groups nested more than"},
		{strings.Repeat("[", 100), 49, "classes nested more than"},
		{strings.Repeat("a", 5000), 4096, "4096"},
	} {
		_, err := Compile(c.expr)
		var syntax *SyntaxError
		if !errors.As(err, &syntax) || syntax.Offset != c.offset || !strings.Contains(syntax.What, c.what) {
			t.Errorf("Compile(%.40q) = %v, want byte %d: …%s…", c.expr, err, c.offset, c.what)
		}
	}
}

// reads splits text and returns the number of characters that the table reads.
func (p *Pattern) reads(text string) int {
	total := 0
	for i := 0; i < len(text); {
		end := p.End(text, i)
		row := uint32(0)
		for j := i; j < len(text); {
			r, size := utf8.DecodeRuneInString(text[j:])
			t := p.table[row|uint32(p.block[p.index[r>>8]][r&255])]
			total++
			if t&dead != 0 && t >= special {
				break
			}
			row = t & rowMask
			j += size
		}
		if end == i {
			_, size := utf8.DecodeRuneInString(text[i:])
			end = i + size
		}
		i = end
	}
	return total
}

// TestLinear checks that no accepted pattern reads a text more than a few times.
func TestLinear(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	check := func(expr string, most int) {
		p, err := Compile(expr)
		if err != nil {
			return
		}
		for range 10 {
			text := patterntest.Text(rng, 3)
			text += strings.Repeat(patterntest.Text(rng, 3), 700) + patterntest.Text(rng, 2)
			n := utf8.RuneCountInString(text)
			if got := p.reads(text); got > most*n+most {
				t.Errorf("%q reads %d characters of %.30q…, of %d", expr, got, text, n)
			}
		}
	}
	for _, expr := range patterntest.ModelPatterns {
		for range 20 {
			check(expr, 4)
		}
	}
	for range 3000 {
		check(patterntest.Pattern(rng), 30)
	}
}

// FuzzCompile checks that accepted patterns split texts as the backtracking matcher does.
func FuzzCompile(f *testing.F) {
	models := slices.Collect(maps.Values(patterntest.ModelPatterns))
	for _, expr := range models {
		for _, text := range []string{
			"I'VE 123 \n\n  中文 été", "been'ſ \t here\r\n", "漢字とカナ・ー。ア・イー゛あ゙い", "naïve e\u0301 \u0301\u0301x ा ्",
			"[null, 2.5e10]}//\n/\r", "〇々漢字'll𠀀 I'ſx \t漢é", "XMLHttpRequest ﬁ",
		} {
			f.Add(expr, text)
		}
	}
	f.Add(`(?:a|b){1,3}+c(?=[^\s&&\S])|$x\z`, "abc")
	f.Fuzz(func(t *testing.T, expr, text string) {
		model := slices.Contains(models, expr)
		if len(expr) > 200 && !model || len(text) > 40 || !utf8.ValidString(text) {
			return
		}
		p, err := Compile(expr)
		if err != nil {
			return
		}
		n := tree(t, expr)
		if strings.ContainsAny(expr, "({") && !model { // the backtracking matcher can take exponential time
			for i := 0; i < len(text); {
				if i, _ = p.Next(text, i); i < len(text) {
					_, size := utf8.DecodeRuneInString(text[i:])
					i += size
				}
			}
			return
		}
		checkText(t, expr, p, n, text)
	})
}
