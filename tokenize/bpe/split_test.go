package bpe_test

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/bpe/internal/pattern/patterntest"
)

var behaviors = []string{"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"}

// TestSplitBehavior checks that matches and gaps become the same pieces as in the reference engine.
func TestSplitBehavior(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		behavior, text string
		invert         bool
		want           string
	}{
		{"Isolated", "-a--b-", false, "- a - - b -"},
		{"Isolated", "-a--b-", true, "- a - - b -"},
		{"Removed", "-a--b-", false, "a b"},
		{"Removed", "-a--b-", true, "- - - -"},
		{"MergedWithPrevious", "-a--b-", false, "- a- - b-"},
		{"MergedWithPrevious", "-a--b-", true, "-a - -b -"},
		{"MergedWithNext", "-a--b-", false, "-a - -b -"},
		{"MergedWithNext", "-a--b-", true, "- a- - b-"},
		{"Contiguous", "-a--b-", false, "- a -- b -"},
		{"Contiguous", "-a--b-", true, "- a -- b -"},
		{"MergedWithPrevious", "a---b", false, "a- - - b"},
		{"MergedWithPrevious", "a---b", true, "a - - -b"},
		{"MergedWithNext", "a---b", false, "a - - -b"},
		{"MergedWithNext", "a---b", true, "a- - - b"},
		{"Isolated", "", false, ""},
		{"Removed", "--", false, ""},
		{"MergedWithPrevious", "ab", false, "ab"},
		{"MergedWithNext", "ab", true, "ab"},
	} {
		split, err := bpe.Splitter("", "-", test.behavior, test.invert)
		if err != nil {
			t.Fatal(err)
		}
		if got := split(test.text); strings.Join(got, " ") != test.want {
			t.Errorf("%s, invert %v: %q is split into %q, want %s", test.behavior, test.invert, test.text, got, test.want)
		}
	}
}

// A splitCase is an input line of split.py.
type splitCase struct {
	Regex    string   `json:"regex,omitempty"`
	String   string   `json:"string,omitempty"`
	Digits   *bool    `json:"digits,omitempty"`
	Behavior string   `json:"behavior"`
	Invert   bool     `json:"invert"`
	Texts    []string `json:"texts"`
}

func compareSplits(t *testing.T, cases []splitCase) {
	t.Helper()
	for n, answer := range askScript[json.RawMessage](t, python(t), "split.py", "split", nil, cases) {
		c := cases[n]
		var want [][]string
		if err := json.Unmarshal(answer, &want); err != nil {
			t.Errorf("%q: the reference engine returned %s", c.Regex, answer)
			continue
		}
		split, err := bpe.Splitter(c.Regex, c.String, c.Behavior, c.Invert)
		if c.Digits != nil {
			split, err = bpe.DigitSplitter(*c.Digits)
		}
		if err != nil {
			t.Fatal(err)
		}
		for i, text := range c.Texts {
			if got := split(text); !slices.Equal(got, want[i]) {
				t.Fatalf("regex %q, string %q, %s, invert %v: %q is split into %q, want %q", c.Regex, c.String, c.Behavior, c.Invert, text, got, want[i])
			}
		}
	}
}

// TestPeerSplit checks that random and known patterns split texts as the reference engine does.
func TestPeerSplit(t *testing.T) {
	t.Parallel()
	t.Logf("go test ./tokenize/bpe -run TestPeerSplit -seed %d", *seed)
	rng := rand.New(rand.NewPCG(*seed, 31))
	texts := func() []string {
		list := make([]string, 20)
		for i := range list {
			list[i] = patterntest.Text(rng, 20)
		}
		return list
	}
	var cases []splitCase
	for _, expr := range patterntest.ModelPatterns {
		for range splitCases / 100 {
			cases = append(cases, splitCase{Regex: expr, Behavior: "Isolated", Texts: texts()})
		}
	}
	for len(cases) < splitCases {
		c := splitCase{Behavior: "Isolated", Texts: texts()}
		if rng.IntN(2) == 0 {
			c.Behavior, c.Invert = behaviors[rng.IntN(len(behaviors))], rng.IntN(2) == 0
		}
		switch rng.IntN(20) {
		case 0:
			individual := rng.IntN(2) == 0
			c.Digits = &individual
		case 1, 2:
			c.String = patterntest.Text(rng, 2)
		default:
			c.Regex = patterntest.Pattern(rng)
			if rng.IntN(10) > 0 { // few of these are valid
				c.Regex = patterntest.RandomSyntax(rng)
			}
			if _, err := bpe.Splitter(c.Regex, "", c.Behavior, c.Invert); err != nil {
				continue
			}
		}
		cases = append(cases, c)
	}
	compareSplits(t, cases)
}

// TestPeerSplitCodePoints checks that each set of characters that a pattern can name has the same
// characters in the reference engine, inside a class and alone.
func TestPeerSplitCodePoints(t *testing.T) {
	t.Parallel()
	var texts []string
	for first := rune(0); first < 0x110000; first += 0x80 {
		var b strings.Builder
		for r := first; r < first+0x80; r++ {
			if r < 0xD800 || r > 0xDFFF && r < 0x32000 || r >= 0xE0000 && r < 0xE0200 {
				b.WriteString("a")
				b.WriteRune(r)
				b.WriteString(" ")
			}
		}
		if b.Len() > 0 {
			texts = append(texts, b.String())
		}
	}
	atoms := []string{`\s`, `\S`, `\d`, `\D`, `.`, `(?i:s)`, `(?i:[sk])`}
	for name := range strings.FieldsSeq("C L M N P S Z Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Han") {
		atoms = append(atoms, `\p{`+name+`}`)
	}
	var cases []splitCase
	for _, atom := range atoms[:splitAtoms(len(atoms))] {
		cases = append(cases, splitCase{Regex: atom, Behavior: "Isolated", Texts: texts})
		if atom != "." {
			cases = append(cases, splitCase{Regex: "[^" + strings.TrimSuffix(strings.TrimPrefix(atom, "(?i:"), ")") + "]", Behavior: "Isolated", Texts: texts})
		}
	}
	for _, individual := range []bool{true, false} {
		cases = append(cases, splitCase{Digits: &individual, Texts: texts})
	}
	compareSplits(t, cases)
}
