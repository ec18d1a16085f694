package bpe_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
)

// normalizing are the tokenizers that change a text: they compose it, or write spaces as ▁. A
// second round trip changes nothing more.
var normalizing = []string{"qwen2.5", "qwen3", "qwen3.5", "command-r-plus", "minimax-m2", "gemma3", "llama2"}

// TestRoundTrip checks that encoded texts, normalized if the tokenizer does so, decode to
// themselves.
func TestRoundTrip(t *testing.T) {
	if raceEnabled {
		t.Skip(oneGoroutine)
	}
	t.Parallel()
	for i, name := range bpetest.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(*seed, uint64(200+i)))
			tok := bpetest.Tokenizer(t, name)
			for _, text := range hostileTexts(t, rng, 3000) {
				for _, mode := range []bpe.AddedMode{bpe.AddedAll, bpe.AddedNone} {
					if name == "llama2" && mode != bpe.AddedNone {
						continue // adds a space after every added token
					}
					ids := encode(t, tok, text, bpe.EncodeOptions{Added: mode})
					back := decode(t, tok, ids, bpe.DecodeOptions{})
					if slices.Contains(normalizing, name) {
						again := encode(t, tok, back, bpe.EncodeOptions{Added: mode})
						text, back = back, decode(t, tok, again, bpe.DecodeOptions{})
					}
					if back != text {
						t.Fatalf("AppendText(AppendTokens(%q, mode %d)) = %q (seed %d)", text, mode, back, *seed)
					}
				}
			}
		})
	}
}

// TestAppends checks that dst is kept, and that its memory is reused if it is large enough.
func TestAppends(t *testing.T) {
	t.Parallel()
	tok := bpetest.Tokenizer(t, "qwen3")
	dst := append(make([]int32, 0, 100), 1, 2)
	ids, err := tok.AppendTokens(dst, "Hello")
	if err != nil || !slices.Equal(ids, []int32{1, 2, 9707}) || &ids[0] != &dst[0] {
		t.Errorf("AppendTokens = %v, %v", ids, err)
	}
	if ids, err := tok.AppendTokens(nil, ""); ids != nil || err != nil {
		t.Errorf("AppendTokens of nothing = %v, %v", ids, err)
	}
	text, err := tok.AppendText([]byte("so: "), ids[2:], bpe.DecodeOptions{})
	if err != nil || string(text) != "so: Hello" {
		t.Errorf("AppendText = %q, %v", text, err)
	}
}

// TestInvalidUTF8 has byte strings and the result of Python's bytes.decode(errors="replace").
func TestInvalidUTF8(t *testing.T) {
	t.Parallel()
	tok := bpetest.Tokenizer(t, "gpt-oss")
	for _, test := range []struct{ in, want string }{
		{"\xff", "\ufffd"},
		{"a\xffb", "a\ufffdb"},
		{"\xe2\x82", "\ufffd"},
		{"\xe2\x82a", "\ufffda"},
		{"\xf0\x9f\x98", "\ufffd"},
		{"\xf0\x9f\x98\xe2\x82", "\ufffd\ufffd"},
		{"\xc0\x80", "\ufffd\ufffd"},
		{"\xe0\x80\x80", "\ufffd\ufffd\ufffd"},
		{"\xed\xa0\x80", "\ufffd\ufffd\ufffd"},
		{"\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd"},
		{"\xf5\x80", "\ufffd\ufffd"},
		{"\xc3\xa9\x80\xc3", "é\ufffd\ufffd"},
		{"\x80\x80\x80", "\ufffd\ufffd\ufffd"},
		{"\xf0\x80\x80", "\ufffd\ufffd\ufffd"},
		{"\xf1\x80\x80\xf1", "\ufffd\ufffd"},
	} {
		checkIDs(t, test.in, encode(t, tok, test.in, bpe.EncodeOptions{}), encode(t, tok, test.want, bpe.EncodeOptions{}))
		var ids []int32
		for _, b := range []byte(test.in) {
			id, ok := tok.ID(spell(b))
			if !ok {
				t.Fatalf("no token for byte %x", b)
			}
			ids = append(ids, id)
		}
		if got := decode(t, tok, ids, bpe.DecodeOptions{}); got != test.want {
			t.Errorf("AppendText of the bytes % x = %q, want %q", test.in, got, test.want)
		}
		raw, err := tok.AppendBytes(nil, ids, bpe.DecodeOptions{})
		if err != nil || string(raw) != test.in {
			t.Errorf("AppendBytes of the bytes % x = % x, %v", test.in, raw, err)
		}
	}
}

// TestPretokenLimit checks that 50 MB of one letter give an error with the offset in the whole text, and
// that nothing is appended.
func TestPretokenLimit(t *testing.T) {
	if raceEnabled {
		t.Skip(oneGoroutine)
	}
	t.Parallel()
	long := strings.Repeat("a", 50<<20)
	text := "one 2 <|im_end|> " + long + "<|im_end|>"
	for _, name := range []string{"qwen3", "deepseek-v3"} {
		tok := bpetest.Tokenizer(t, name)
		dst, before := []int32{7}, []bpe.Mark{{Text: 1}}
		for _, begin := range []int{0, 100} {
			got, err := tok.AppendTokens(dst, text)
			marks := before
			if begin > 0 {
				got, marks, err = tok.AppendMarked(dst, before, []byte(text), bpe.Mark{Text: begin, IDs: 1})
			}
			limit, ok := errors.AsType[*bpe.PretokenError](err)
			if !ok || !slices.Equal(got, dst) || !slices.Equal(marks, before) {
				t.Fatalf("%s: %d ids, %d marks, %v, want *PretokenError and nothing appended", name, len(got), len(marks), err)
			}
			// deepseek-v3 has no <|im_end|>, so there it is text.
			if limit.Offset != begin+len("one 2 <|im_end|>") || limit.Len != len(long)+1 {
				t.Errorf("%s: pre-token at %d of %d bytes, want at %d of %d", name, limit.Offset, limit.Len, begin+16, len(long)+1)
			}
		}
		if ids := encode(t, tok, "one 2", bpe.EncodeOptions{}); len(ids) == 0 {
			t.Errorf("%s: nothing encoded after an error", name)
		}
	}
}

// TestGateNotQuadratic checks that encoding time is about linear, even on repeated worst inputs.
func TestGateNotQuadratic(t *testing.T) {
	if raceEnabled {
		t.Skip(oneGoroutine)
	}
	if testing.Short() {
		t.Skip("short: takes some seconds")
	}
	for _, unit := range []string{"<|", "<｜", "<", "a", " ", "=", "\n ", "A", "é", "e\u0301", "\u0301", "\u1100", "中", "9", "'", "<|im_", "\x00", "\u3000x", "/", "ǅ", "\xe2\x82", "\u0344"} {
		for _, name := range []string{"qwen3", "deepseek-v3", "gpt-oss", "llama3.1"} {
			tok := bpetest.Tokenizer(t, name)
			measure := func(n int) time.Duration {
				text := strings.Repeat(unit, n/len(unit))
				best := time.Hour
				for range 3 {
					start := time.Now()
					encode(t, tok, text, bpe.EncodeOptions{})
					best = min(best, time.Since(start))
				}
				return best
			}
			const n = 40_000
			// Quadratic time would be 64 times as long; n log n is some 10 times.
			for try := 1; ; try++ { // a busy machine can disturb one measurement, not three
				short, long := measure(n), measure(8*n)
				if long <= 24*short || long <= 200*time.Millisecond {
					break
				}
				if try == 3 {
					t.Errorf("%s, %q: %d bytes take %v, %d bytes %v", name, unit, n, short, 8*n, long)
					break
				}
			}
		}
	}
}

// TestShared checks that many goroutines get the same ids from one tokenizer.
func TestShared(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"qwen3", "deepseek-v3"} {
		tok := bpetest.Tokenizer(t, name)
		texts := hostileTexts(t, rand.New(rand.NewPCG(5, 5)), 400)
		want := make([][]int32, len(texts))
		for i, text := range texts {
			want[i] = encode(t, tok, text, bpe.EncodeOptions{})
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				var ids []int32
				for i, text := range texts {
					var err error
					if ids, err = tok.AppendTokens(ids[:0], text); err != nil || !slices.Equal(ids, want[i]) {
						t.Errorf("%s: AppendTokens(%q) = %v, %v, want %v", name, text, ids, err, want[i])
						return
					}
				}
			})
		}
		wg.Wait()
	}
}

// TestGateZeroAllocs checks that encoding and decoding do not allocate once memory has grown, for
// any text: composed or not, with invalid UTF-8, long words or added tokens, and with normalizers.
func TestGateZeroAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools forget")
	}
	if !bpe.TextViews {
		t.Skip("purego: composed text is copied, one allocation each")
	}
	texts := map[string]string{
		"mixed":      strings.Join(corpus(t, 100_000)[:20], " "),
		"uncomposed": "e\u0301 u\u0308 \u1100\u1161\u11a8 x",
		"invalid":    "a\xff b\xe2\x82",
		"long word":  strings.Repeat("abcdefghijklmnop", 20),
		"Chinese":    speedTexts(t, 10_000)[2].text,
		"special":    "<|im_start|>user\nhello<|im_end|>\n",
		"characters": strings.Repeat("abc ab 日本 😀\n", 50) + strings.Repeat("a", 200),
	}
	toks := map[string]*bpe.Tokenizer{
		"characters": parseFile(t, charFile(nil)),
		"metaspace":  parseFile(t, charFile(map[string]any{"normalizer": nil, "pre_tokenizer": object{"type": "Metaspace", "replacement": "▁"}})),
	}
	for _, name := range []string{"qwen3", "gpt-oss", "deepseek-v3"} {
		toks[name] = bpetest.Tokenizer(t, name)
	}
	for name, tok := range toks {
		for what, text := range texts {
			ids := encode(t, tok, text, bpe.EncodeOptions{})
			if n := testing.AllocsPerRun(100, func() {
				ids, _ = tok.AppendTokens(ids[:0], text)
			}); n != 0 {
				t.Errorf("%s, %s: AppendTokens allocates %v times", name, what, n)
			}
			buf := make([]byte, 0, 8*len(text)+100)
			if n := testing.AllocsPerRun(100, func() {
				buf, _ = tok.AppendText(buf[:0], ids, bpe.DecodeOptions{SkipSpecial: tok.Family() != bpe.FamilyChars})
			}); n != 0 {
				t.Errorf("%s, %s: AppendText allocates %v times", name, what, n)
			}
		}
	}
}
