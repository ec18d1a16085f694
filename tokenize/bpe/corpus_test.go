package bpe_test

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
)

// corpus returns documents of mixed text, always the same for a given size: about a third program
// code, a sixth JSON, a tenth logs, a quarter English prose, a fifth other scripts and hostile
// mixtures. Code and prose come from the Go distribution. Other scripts are generated from the
// stored real texts, so that new words keep appearing that no cache has seen.
func corpus(tb testing.TB, bytes int) []string {
	tb.Helper()
	rng := rand.New(rand.NewPCG(1, uint64(bytes)))
	parts := []struct {
		share int // percent
		text  string
	}{
		{33, goText(tb, bytes*33/100, false)},
		{16, jsonText(rng, bytes*16/100)},
		{10, logText(rng, bytes*10/100)},
		{23, proseText(tb, bytes*23/100)},
		{14, grownText(tb, rng, bytes*14/100)},
		{4, strings.Join(hostileTexts(tb, rng, bytes*4/100/60), " ")},
	}
	var docs []string
	for _, p := range parts {
		for s := p.text; s != ""; {
			n := min(len(s), 200+int(rng.ExpFloat64()*4000))
			for n < len(s) && !utf8.RuneStart(s[n]) {
				n++
			}
			docs = append(docs, s[:n])
			s = s[n:]
		}
	}
	rng.Shuffle(len(docs), func(i, j int) { docs[i], docs[j] = docs[j], docs[i] })
	return docs
}

// goroot is the folder of the Go distribution.
var goroot = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	return strings.TrimSpace(string(out)), err
})

// goSource returns a path below the sources of the Go distribution.
func goSource(tb testing.TB, name ...string) string {
	tb.Helper()
	root, err := goroot()
	if err != nil {
		tb.Fatal(err)
	}
	return filepath.Join(append([]string{root, "src"}, name...)...)
}

// goText returns Go source, or only its comments, which are English.
func goText(tb testing.TB, n int, comments bool) string {
	tb.Helper()
	var b strings.Builder
	roots := []string{"net", "cmd/compile", "go", "encoding", "runtime", "crypto", "os", "cmd/go"}
	for _, root := range roots {
		err := filepath.WalkDir(goSource(tb, root), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
				return err
			}
			raw, err := os.ReadFile(path)
			if err != nil || len(raw) > 300_000 || !utf8.Valid(raw) {
				return err
			}
			if b.Len() > n {
				return fs.SkipAll
			}
			if !comments {
				b.Write(raw)
				return nil
			}
			for line := range strings.Lines(string(raw)) {
				if text, ok := strings.CutPrefix(strings.TrimSpace(line), "// "); ok {
					b.WriteString(text)
					b.WriteByte('\n')
				}
			}
			return nil
		})
		if err != nil {
			tb.Fatal(err)
		}
	}
	return b.String()[:min(n, b.Len())]
}

func proseText(tb testing.TB, n int) string {
	tb.Helper()
	raw, err := os.ReadFile(goSource(tb, "testdata", "Isaac.Newton-Opticks.txt"))
	if err != nil {
		tb.Fatal(err)
	}
	s := string(raw[:min(len(raw), n/2)])
	return s + goText(tb, n-len(s), true)
}

var words = strings.Fields("status error request user id count total name value time session token message index agent memory block label limit description human persona tool result output input prompt call")

func jsonText(rng *rand.Rand, n int) string {
	var b strings.Builder
	for b.Len() < n {
		fmt.Fprintf(&b, `{"%s_%s": %d, "%s": %.4f, "id": "%016x", "%s": ["%s", null, %t], "text": "%s %s\n%s"},`+"\n",
			words[rng.IntN(len(words))], words[rng.IntN(len(words))], rng.IntN(1<<uint(rng.IntN(30)+1)), words[rng.IntN(len(words))], rng.NormFloat64(),
			rng.Uint64(), words[rng.IntN(len(words))], words[rng.IntN(len(words))], rng.IntN(2) == 0,
			words[rng.IntN(len(words))], words[rng.IntN(len(words))], words[rng.IntN(len(words))])
	}
	return b.String()
}

func logText(rng *rand.Rand, n int) string {
	var b strings.Builder
	for b.Len() < n {
		fmt.Fprintf(&b, "2025-%02d-%02dT%02d:%02d:%02d.%03dZ %s [%s-%d] /usr/lib/%s/%s.so.%d: %s=%x %s %d.%d.%d.%d:%d took %dms\n",
			1+rng.IntN(12), 1+rng.IntN(28), rng.IntN(24), rng.IntN(60), rng.IntN(60), rng.IntN(1000),
			[]string{"INFO", "WARN", "DEBUG", "ERROR"}[rng.IntN(4)], words[rng.IntN(len(words))], rng.IntN(64),
			words[rng.IntN(len(words))], words[rng.IntN(len(words))], rng.IntN(9), words[rng.IntN(len(words))], rng.Uint32(),
			words[rng.IntN(len(words))], rng.IntN(256), rng.IntN(256), rng.IntN(256), rng.IntN(256), rng.IntN(65536), rng.IntN(5000))
	}
	return b.String()
}

// realTexts returns the samples of real text in the reference vectors.
func realTexts(tb testing.TB) []string {
	tb.Helper()
	return jsonFile[[]string](tb, "vectors", reference, "texts.json")[2000:]
}

// grownText extends the non-Latin real texts with a Markov chain of characters.
func grownText(tb testing.TB, rng *rand.Rand, n int) string {
	tb.Helper()
	next := map[[2]rune][]rune{}
	var starts [][2]rune
	learn := func(text string) {
		rs := []rune(text)
		for i := range len(rs) - 2 {
			if rs[i] < 0x250 && rs[i+1] < 0x250 && rs[i+2] < 0x250 && i%40 != 0 {
				continue
			}
			k := [2]rune{rs[i], rs[i+1]}
			if _, ok := next[k]; !ok {
				starts = append(starts, k)
			}
			next[k] = append(next[k], rs[i+2])
		}
	}
	for _, text := range realTexts(tb) {
		learn(text)
	}
	for _, in := range jsonFile[struct {
		Inputs []struct{ Text string }
	}](tb, "vectors", "swift-transformers", "multilingual_inputs.json").Inputs {
		learn(in.Text)
	}
	var b strings.Builder
	for b.Len() < n {
		k := starts[rng.IntN(len(starts))]
		for range 400 {
			c, ok := next[k]
			if !ok {
				break
			}
			r := c[rng.IntN(len(c))]
			b.WriteRune(r)
			k = [2]rune{k[1], r}
		}
	}
	return b.String()
}

// hostileAlphabet has characters that split, compose or decode in unusual ways.
var hostileAlphabet = append(strings.Split("abcxyzABCXYZsStTmMdDrRvVlLeE'’ \t\n\r/\\.,!?-_=+*&^%$#@()[]{}<>|\"`~0123456789", ""),
	"ſ", "K", "é", "É", "ǅ", "ʼ", "ª", "中", "文", "あ", "ア", "ー", "・", "゠", "ヿ", "ഀ", "़", "्", "́", "̈", "\u200b", "\u200d", "\u00a0", "\u2003", "\u3000", "\u2028",
	"\x85", "\x0b", "\x0c", "\x1c", "\x1f", "\x00", "\x7f", "٣", "²", "Ⅷ", "①", "𝟘", "𐐀", "😀", "👍🏽", "❤️", "€", "±", "―", "…", "。", "，", "Ａ", "１", "가", "각",
	"\u1100", "\u1161", "\u11a8", "\ufeff", "\ufffd", "\ue000", "İ", "ß", "龥", "龦", "𠀀", "  ", "    ", "\n\n", "\r\n", "'s", "'LL", "'Re", "'ſ", "{\"a\": 1}", "http://",
	"１２３", "1234567", "a\u0323\u0302", "\u0302\u0323q", "ा", "Å", "\u212b", "豈", "が", "ｶﾞ", "//", "\n/", "/\n", "\u0344", "\u1e9b\u0323", "\U0001d15e", "\u09c7\u09be", "〇", "々", "⺀", "▁", "▁▁", "<0x0A>")

// hostileTexts returns n short texts from small random alphabets, with special tokens of all
// families and samples of real text.
func hostileTexts(tb testing.TB, rng *rand.Rand, n int) []string {
	tb.Helper()
	var special []string
	for _, name := range bpetest.Names() {
		if testing.Short() && !bpetest.Installed(name) {
			continue
		}
		added := bpetest.Tokenizer(tb, name).Added()
		for i, a := range added {
			if i < 30 || i >= len(added)-8 {
				special = append(special, a.Content)
			}
		}
	}
	reals := realTexts(tb)
	out := make([]string, n)
	lengths := []int{1, 2, 3, 5, 8, 13, 21, 40, 80}
	sizes := []int{3, 6, 12, 40, len(hostileAlphabet)}
	for i := range out {
		letters := make([]string, sizes[rng.IntN(len(sizes))])
		for k := range letters {
			letters[k] = hostileAlphabet[rng.IntN(len(hostileAlphabet))]
		}
		var b strings.Builder
		for range lengths[rng.IntN(len(lengths))] {
			switch p := rng.IntN(1000); {
			case p < 40:
				b.WriteString(special[rng.IntN(len(special))])
			case p < 60:
				r := []rune(reals[rng.IntN(len(reals))])
				a := rng.IntN(len(r) + 1)
				b.WriteString(string(r[a:min(len(r), a+rng.IntN(30))]))
			case p < 65:
				c := rune(rng.IntN(0x110000))
				if c < 0xD800 || c > 0xDFFF {
					b.WriteRune(c)
				}
			case p < 70:
				s := special[rng.IntN(len(special))]
				b.WriteString(s[:rng.IntN(len(s))])
			default:
				b.WriteString(letters[rng.IntN(len(letters))])
			}
		}
		out[i] = strings.ToValidUTF8(b.String(), "\ufffd")
	}
	return out
}
