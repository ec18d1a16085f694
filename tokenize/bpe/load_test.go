package bpe_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
	"github.com/rollout-rl/rollout/tokenize/bpe/internal/pattern"
)

// smallFile returns a tokenizer.json of 256 bytes and a few merges; "model.x" changes the model.
func smallFile(changes map[string]any) []byte {
	vocab := map[string]int{}
	for b := range 256 {
		vocab[spell(byte(b))] = b
	}
	vocab["ab"], vocab["abc"], vocab["Ġa"] = 256, 257, 258
	model := object{
		"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
		"fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
		"vocab": vocab, "merges": []any{[]string{"a", "b"}, []string{"ab", "c"}, []string{"Ġ", "a"}},
	}
	file := object{
		"version": "1.0", "truncation": nil, "padding": nil, "normalizer": object{"type": "NFC"},
		"added_tokens":   []object{addedPart(259, "<s>", "special")},
		"pre_tokenizer":  splitPart(bpe.PatternO200K, "Isolated", false),
		"post_processor": nil, "decoder": object{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}, "model": model,
	}
	for key, v := range changes {
		if name, ok := strings.CutPrefix(key, "model."); ok {
			model[name] = v
		} else {
			file[key] = v
		}
	}
	return marshal(file)
}

func smallFiles() [][]byte {
	return [][]byte{
		smallFile(nil),
		smallFile(map[string]any{"model.merges": []string{"a b", "ab c", "Ġ a"}}),
		smallFile(map[string]any{"post_processor": template("<s>", "<s>", 259, 259)}),
	}
}

// TestHoles checks that a vocabulary can skip ids, which then have no token. New added tokens are
// numbered from the vocabulary's size, despite holes.
func TestHoles(t *testing.T) {
	t.Parallel()
	file := strings.Replace(string(smallFile(map[string]any{"added_tokens": []object{}})), `"abc":257`, `"abc":5000`, 1)
	tok := parseFile(t, []byte(file))
	checkIDs(t, "abc", encode(t, tok, "abc", bpe.EncodeOptions{}), []int32{5000})
	far := strings.Replace(file, `"abc":5000`, `"abc":4194303`, 1)
	if _, err := bpe.Parse([]byte(far), bpe.Options{}); !errors.Is(err, bpe.ErrUnsupported) || !strings.Contains(err.Error(), "ids as large as 4194303 for only 259 tokens") {
		t.Errorf("an id far from the others: %v", err)
	}
	withAdded := string(smallFile(map[string]any{"added_tokens": []object{addedPart(5000, "abc"), addedPart(259, "<s>")}}))
	added := parseFile(t, []byte(strings.Replace(withAdded, `"abc":257`, `"abc":5000`, 1)))
	checkIDs(t, "abc<s>", encode(t, added, "abc<s>", bpe.EncodeOptions{}), []int32{5000, 259})
	for _, id := range []int32{257, 4999, 5001, -1, 1 << 30, -1 << 31} {
		dst := []byte("kept")
		got, err := tok.AppendText(dst, []int32{97, id}, bpe.DecodeOptions{})
		if !errors.Is(err, bpe.ErrVocab) || string(got) != "kept" {
			t.Errorf("AppendText(97, %d) = %q, %v, want ErrVocab and nothing appended", id, got, err)
		}
		if _, err := tok.Bytes(id); !errors.Is(err, bpe.ErrVocab) {
			t.Errorf("Bytes(%d) = %v, want ErrVocab", id, err)
		}
		if tok.Has(id) || tok.IsSpecial(id) {
			t.Errorf("id %d has a token", id)
		}
	}
}

// TestExperimental checks that Kimi's pattern, and a pre-tokenizer that no known family has, need
// Options.Experimental.
func TestExperimental(t *testing.T) {
	t.Parallel()
	for family, parts := range map[bpe.Family][]object{
		bpe.FamilyKimi: {splitPart(bpe.PatternKimi, "Isolated", false)},
		bpe.FamilyOther: {
			splitPart(`\p{L}+|\p{N}`, "Isolated", false),
			splitPart(bpe.PatternO200K, "MergedWithNext", false),
			{"type": "Sequence", "pretokenizers": []object{{"type": "Digits", "individual_digits": false}, {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}}},
		},
	} {
		for _, part := range parts {
			file, text := smallFile(map[string]any{"pre_tokenizer": part}), ""
			if family == bpe.FamilyOther {
				text = string(marshal(part))
			}
			checkExperimental(t, fstest.MapFS{bpe.FileJSON: {Data: file}}, family, text)
		}
	}
}

// checkExperimental checks that a folder needs Options.Experimental, and returns its tokenizer.
func checkExperimental(t *testing.T, folder fstest.MapFS, family bpe.Family, text string) *bpe.Tokenizer {
	t.Helper()
	if _, err := bpe.Load(folder, bpe.Options{}); !errors.Is(err, bpe.ErrExperimental) || !strings.Contains(err.Error(), text) {
		t.Errorf("Load = %v, want ErrExperimental with %q", err, text)
	}
	tok, err := bpe.Load(folder, bpe.Options{Experimental: true})
	if err != nil {
		t.Fatal(err)
	}
	if tok.Family() != family {
		t.Errorf("Family() = %s, want %s", tok.Family(), family)
	}
	return tok
}

// kimiFolder returns Kimi's configuration with a rank file from the DeepSeek vocabulary, and the words
// of that file.
func kimiFolder(tb testing.TB) (folder fstest.MapFS, words []string) {
	tb.Helper()
	base := bpetest.Tokenizer(tb, "deepseek-v3")
	words = byteWords()
	seen := map[string]bool{}
	for _, w := range words {
		seen[w] = true
	}
	for id := range int32(base.VocabSize()) {
		if w, err := base.Bytes(id); err == nil && len(w) > 0 && !seen[string(w)] {
			seen[string(w)] = true
			words = append(words, string(w))
		}
	}
	for n := 0; len(words) < 163584; n++ { // the number of ranks determines the ids of the special tokens
		words = append(words, fmt.Sprintf("\x00filler %d", n))
	}
	words = words[:163584]
	return fstest.MapFS{
		bpe.FileTiktoken: {Data: []byte(rankFile(words))},
		bpe.FileConfig:   {Data: bpetest.Read(tb, "kimi-k2", bpe.FileConfig)},
	}, words
}

func rankFile(words []string) string {
	var ranks strings.Builder
	for i, w := range words {
		fmt.Fprintf(&ranks, "%s %d\n", base64.StdEncoding.EncodeToString([]byte(w)), i)
	}
	return ranks.String()
}

// TestTiktoken checks that ranks merge as in tiktoken, special tokens have the right ids, and the
// input is split where Kimi's own code splits it.
func TestTiktoken(t *testing.T) {
	if raceEnabled {
		t.Skip(oneGoroutine)
	}
	t.Parallel()
	folder, words := kimiFolder(t)
	tok := checkExperimental(t, folder, bpe.FamilyKimi, "")
	slow := &slowTokenizer{patterns: []*pattern.Pattern{compilePattern(t, bpe.PatternKimi)}, vocab: map[string]int32{}, ignore: true}
	for i, w := range words {
		slow.vocab[spelled(w)] = int32(i)
	}
	slow.rank = func(a, b string) int { // a pair has the rank of its word
		if r, ok := slow.vocab[a+b]; ok {
			return int(r)
		}
		return math.MaxInt
	}
	rng := rand.New(rand.NewPCG(7, 7))
	for _, text := range hostileTexts(t, rng, 2000) {
		if checkIDs(t, text, encode(t, tok, text, bpe.EncodeOptions{Added: bpe.AddedNone}), slow.encode(text)) {
			if back := decode(t, tok, encode(t, tok, text, bpe.EncodeOptions{}), bpe.DecodeOptions{}); back != text {
				t.Errorf("AppendText(AppendTokens(%q)) = %q", text, back)
			}
		}
	}
	for content, id := range map[string]int32{"[BOS]": 163584, "<|im_end|>": 163586, "<|reserved_token_163600|>": 163600} {
		if got := encode(t, tok, content, bpe.EncodeOptions{}); !slices.Equal(got, []int32{id}) {
			t.Errorf("AppendTokens(%q) = %v, want %d", content, got, id)
		}
	}

	letters := strings.Repeat("ab", 30_000)
	part := encode(t, tok, letters[:25_000], bpe.EncodeOptions{})
	rest := encode(t, tok, letters[50_000:], bpe.EncodeOptions{})
	checkIDs(t, "60,000 letters", encode(t, tok, letters, bpe.EncodeOptions{}), slices.Concat(part, part, rest))
	// A special token is found if it ends at the boundary of two chunks, but not across it.
	text := strings.Repeat("ab ", 400_000/3)[:400_000-10] + "<|im_end|>"
	for extra, want := range map[string]bool{"": true, "a": false, "é": false} {
		got := encode(t, tok, extra+text, bpe.EncodeOptions{})
		if slices.Contains(got, 163586) != want {
			t.Errorf("special token that ends at character %d found: %v", 400_000+len([]rune(extra)), !want)
		}
	}
}

// TestTiktokenCorrupt checks that a damaged rank file or configuration is rejected.
func TestTiktokenCorrupt(t *testing.T) {
	t.Parallel()
	good := rankFile(byteWords())
	for _, test := range []struct {
		name, ranks, config string
		want                error
	}{
		{"good", good, "{}", nil},
		{"no rank", good + "YWI=\n", "{}", bpe.ErrCorrupt},
		{"no base64", good + "@@ 256\n", "{}", bpe.ErrCorrupt},
		{"rank skipped", good + "YWI= 300\n", "{}", bpe.ErrCorrupt},
		{"token twice", good + "AA== 256\n", "{}", bpe.ErrCorrupt},
		{"byte missing", strings.TrimPrefix(good, "AA== 0\n"), "{}", bpe.ErrCorrupt},
		{"bad configuration", good, "{", bpe.ErrCorrupt},
		{"special token far away", good, `{"added_tokens_decoder":{"9999":{"content":"x"}}}`, bpe.ErrCorrupt},
		{"special token twice", good, `{"added_tokens_decoder":{"256":{"content":"x"},"257":{"content":"x"}}}`, bpe.ErrCorrupt},
	} {
		folder := fstest.MapFS{bpe.FileTiktoken: {Data: []byte(test.ranks)}, bpe.FileConfig: {Data: []byte(test.config)}}
		if _, err := bpe.LoadTiktoken(folder, bpe.Options{Experimental: true}); !errors.Is(err, test.want) {
			t.Errorf("%s: LoadTiktoken = %v, want %v", test.name, err, test.want)
		}
	}
}

// TestFiles checks that the digests are the published ones.
func TestFiles(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"qwen2.5":             "c0382117ea329cdf097041132f6d735924b697924d6f6fc3945713e96ce87539",
		"qwen3":               "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
		"llama3.1":            "e134af98b985517b4f068e3755ae90d4e9cd2d45d328325dc503f1c6b2d06cc7",
		"deepseek-v3":         "621ac2e32d0dba658404412318818aaa8ce8cda492e59830109d8da6b517fb41",
		"qwen3.5":             "5f9e4d4901a92b997e463c1f46055088b6cca5ca61a6522d1b9f64c4bb81cb42",
		"deepseek-v4":         "8f9f37ca37fdc4f5fd36d5cf4d3b0e8392edb4e894fd10cc0d70b4957c8633cf",
		"glm4.5":              "9340665016419c825c4bdabbcc9acc43b7ca2c68ce142724afa829abb1be5efd",
		"glm5":                "19e773648cb4e65de8660ea6365e10acca112d42a854923df93db4a6f333a82d",
		"minimax-m2":          "757622126525aeeb131756849d93298070ff3f0319c455ec8c5bb0f6b1cebbe8",
		"gemma3":              "4667f2089529e8e7657cfb6d1c19910ae71ff5f28aa7ab2ff2763330affad795",
		"gpt-oss":             "0614fe83cadab421296e664e1f48f4261fa8fef6e03e63bb75c20f38e37d07d3",
		"mistral-nemo-tekken": "e11c71726323d33da7b8d6f6f269f1988931c0a52b7122bcdd8c05042974e0db",
	} {
		tok := bpetest.Tokenizer(t, name)
		if got := tok.Digest(); got != want {
			t.Errorf("%s: Digest() = %s, want %s", name, got, want)
		}
	}
	if _, err := bpe.Load(fstest.MapFS{}, bpe.Options{}); err == nil || !strings.Contains(err.Error(), bpe.FileJSON) {
		t.Errorf("Load of an empty folder = %v", err)
	}
}

// TestLookup checks pieces, ids, bytes and flags.
func TestLookup(t *testing.T) {
	t.Parallel()
	tok := bpetest.Tokenizer(t, "qwen3")
	for _, test := range []struct {
		piece, bytes string
		id           int32
		special      bool
	}{
		{"<|im_end|>", "<|im_end|>", 151645, true},
		{"<tool_call>", "<tool_call>", 151657, false},
		{"Ġthe", " the", 279, false},
		{"Ċ", "\n", 198, false},
	} {
		id, ok := tok.ID(test.piece)
		if !ok || id != test.id {
			t.Errorf("ID(%q) = %d, %v, want %d", test.piece, id, ok, test.id)
		}
		if got, err := tok.Bytes(test.id); err != nil || string(got) != test.bytes {
			t.Errorf("Bytes(%d) = %q, %v, want %q", test.id, got, err, test.bytes)
		}
		if got := tok.Piece(test.id); got != test.piece {
			t.Errorf("Piece(%d) = %q, want %q", test.id, got, test.piece)
		}
		if got := tok.IsSpecial(test.id); got != test.special {
			t.Errorf("IsSpecial(%d) = %v", test.id, got)
		}
	}
	if _, ok := tok.ID("no such token"); ok || tok.VocabSize() != 151669 || len(tok.Added()) != 26 {
		t.Errorf("a missing token found: %v, %d ids and %d added tokens, want 151669 and 26", ok, tok.VocabSize(), len(tok.Added()))
	}
}

// TestLoadBounded checks that excessive values in a file cost an error, not memory or time.
func TestLoadBounded(t *testing.T) {
	if raceEnabled {
		t.Skip(oneGoroutine)
	}
	small := string(smallFile(nil))
	for name, file := range map[string]string{
		"high id":       strings.Replace(small, `"abc":257`, `"abc":4194303`, 1),
		"deep":          strings.Repeat(`{"model":`, 1<<20),
		"long string":   `{"model":{"vocab":{"` + strings.Repeat("a", 8<<20) + `":1}}}`,
		"many elements": `{"added_tokens":[` + strings.Repeat("{},", 1<<20) + `{}]}`,
		"many names":    `{"model":{` + strings.Repeat(`"a":0,`, 1<<20) + `"a":0}}`,
		"many merges":   `{"model":{"merges":[` + strings.Repeat(`["a","b"],`, 1<<20) + `["a","b"]],"vocab":{"a":0,"b":1,"ab":2}}}`,
		"equal merges":  strings.Replace(small, `["a","b"]`, strings.Repeat(`["a","b"],`, 1<<20)+`["a","b"]`, 1),
		"empty merges":  `{"model":{"vocab":{"":0},"merges":[` + strings.Repeat(`" ",`, 1<<20) + `" "]}}`,
	} {
		start := time.Now()
		var err error
		got := allocated(func() { _, err = bpe.Parse([]byte(file), bpe.Options{}) })
		if limit := uint64(64<<20 + 16*len(file)); got > limit {
			t.Errorf("%s: %d bytes allocated for %d, want at most %d (%v)", name, got, len(file), limit, err)
		}
		if took := time.Since(start); took > time.Minute {
			t.Errorf("%s: %v (%v)", name, took, err)
		}
	}
}

func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestLoadMemory checks that the number of tokens bounds the total allocation of loading and the
// memory that a tokenizer keeps. The package comment states both.
func TestLoadMemory(t *testing.T) {
	if raceEnabled {
		t.Skip(oneGoroutine)
	}
	for _, name := range bpetest.Names() {
		if !bpetest.Installed(name) {
			continue
		}
		raw := bpetest.Read(t, name, bpe.FileJSON)
		var tok *bpe.Tokenizer
		var err error
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		all := allocated(func() { tok, err = bpe.Parse(raw, bpe.Options{Experimental: true}) })
		if err != nil {
			t.Error(err)
			continue
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		kept := int64(after.HeapAlloc) - int64(before.HeapAlloc)
		size, tokens := len(raw), int64(tok.VocabSize())
		runtime.KeepAlive(tok)
		runtime.KeepAlive(raw)
		t.Logf("%s: file %d kB, %d ids, allocated %d kB, kept %d kB", name, size>>10, tokens, all>>10, kept>>10)
		if int64(all) > 640*tokens || kept > 256*tokens {
			t.Errorf("%s: %d ids: %d bytes allocated, %d kept; want at most 640 and 256 for each id", name, tokens, all, kept)
		}
	}
}
