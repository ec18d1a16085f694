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
		"added_tokens":   flagged(object{"id": 259, "content": "<s>", "special": true}),
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

// flagged returns the added tokens with missing flags set to false.
func flagged(tokens ...object) []object {
	for _, o := range tokens {
		for _, flag := range []string{"single_word", "lstrip", "rstrip", "normalized", "special"} {
			if _, ok := o[flag]; !ok {
				o[flag] = false
			}
		}
	}
	return tokens
}

func smallFiles() [][]byte {
	return [][]byte{
		smallFile(nil),
		smallFile(map[string]any{"model.merges": []string{"a b", "ab c", "Ġ a"}}),
		smallFile(map[string]any{"post_processor": template("<s>", "<s>", 259, 259)}),
	}
}

func TestSmallFile(t *testing.T) {
	t.Parallel()
	for i, raw := range smallFiles() {
		tok := parseFile(t, raw)
		want := []int32{257, 32, 256, 259, 256}
		checkIDs(t, "abc ab<s>ab", encode(t, tok, "abc ab<s>ab", bpe.EncodeOptions{}), want)
		post := want
		if i == 2 {
			post = append(append([]int32{259}, want...), 259)
		}
		checkIDs(t, "abc ab<s>ab", encode(t, tok, "abc ab<s>ab", bpe.EncodeOptions{PostProcess: true}), post)
		if got := tok.VocabSize(); got != 260 {
			t.Errorf("VocabSize() = %d, want 260", got)
		}
	}
}

// TestRefused checks that an unimplemented feature is rejected by name.
func TestRefused(t *testing.T) {
	t.Parallel()
	seq := func(parts ...object) object { return object{"type": "Sequence", "pretokenizers": parts} }
	byteLevel := object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}
	for _, test := range []struct {
		name    string
		changes map[string]any
		want    string
	}{
		{"wordpiece", map[string]any{"model.type": "WordPiece"}, "WordPiece"},
		{"unigram", map[string]any{"model.type": "Unigram", "model.vocab": []any{[]any{"a", -1.5}}}, "Unigram"},
		{"dropout", map[string]any{"model.dropout": 0.1}, "dropout"},
		{"prefix", map[string]any{"model.continuing_subword_prefix": "##"}, "continuing_subword_prefix"},
		{"suffix", map[string]any{"model.end_of_word_suffix": "</w>"}, "end_of_word_suffix"},
		{"truncation", map[string]any{"truncation": object{"max_length": 5}}, "truncation"},
		{"padding", map[string]any{"padding": object{}}, "padding"},
		{"normalizer", map[string]any{"normalizer": object{"type": "NFKC"}}, "normalizer NFKC"},
		{"normalizer in a sequence", map[string]any{"normalizer": object{"type": "Sequence", "normalizers": []object{{"type": "Lowercase"}}}}, "normalizer Lowercase"},
		{"no pre-tokenizer", map[string]any{"pre_tokenizer": nil}, "pre_tokenizer null"},
		{"metaspace", map[string]any{"pre_tokenizer": object{"type": "Metaspace"}}, "pre_tokenizer Metaspace"},
		{"punctuation", map[string]any{"pre_tokenizer": seq(object{"type": "Punctuation"}, byteLevel)}, "pre_tokenizer Punctuation"},
		{"digits last", map[string]any{"pre_tokenizer": seq(object{"type": "Digits", "individual_digits": true})}, "pre_tokenizer Digits at position 1 of 1"},
		{"prefix space", map[string]any{"pre_tokenizer": object{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true}}, "add_prefix_space"},
		{"pattern", map[string]any{"pre_tokenizer": splitPart(`\p{L}+(?<=a)`, "Isolated", false)}, `Split pattern "\\p{L}+(?<=a)": byte 6: group (?<=a)`},
		{"behavior", map[string]any{"pre_tokenizer": splitPart(bpe.PatternO200K, "Merged", false)}, `behavior "Merged"`},
		{"no byte level", map[string]any{"pre_tokenizer": seq(splitPart(bpe.PatternO200K, "Isolated", false)["pretokenizers"].([]object)[0])}, "want one ByteLevel"},
		{"decoder", map[string]any{"decoder": object{"type": "WordPiece"}}, "decoder WordPiece"},
		{"no decoder", map[string]any{"decoder": nil}, "decoder null"},
		{"post-processor", map[string]any{"post_processor": object{"type": "BertProcessing"}}, "post_processor BertProcessing"},
		{"two templates", map[string]any{"post_processor": object{"type": "Sequence", "processors": []object{template("<s>", "<s>", 259), template("<s>", "<s>", 259)}}}, "2 templates"},
		{"unknown part", map[string]any{"extra": 1}, `"extra"`},
	} {
		_, err := bpe.Parse(smallFile(test.changes), bpe.Options{Experimental: true})
		if !errors.Is(err, bpe.ErrUnsupported) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: Parse = %v, want ErrUnsupported with %q", test.name, err, test.want)
		}
	}
}

// TestCorrupt checks that files that contradict themselves are rejected.
func TestCorrupt(t *testing.T) {
	t.Parallel()
	whole := string(smallFile(nil))
	added := func(id int, content string) map[string]any {
		return map[string]any{"added_tokens": flagged(object{"id": id, "content": content})}
	}
	for _, test := range []struct{ name, file string }{
		{"empty", ""},
		{"null", "null"},
		{"cut", whole[:len(whole)/2]},
		{"unexpected data after the end", whole + "{}"},
		{"invalid UTF-8", strings.Replace(whole, "abc", "ab\xff", 1)},
		{"deep", `{"version":` + strings.Repeat("[", 100_000)},
		{"no model", `{"version":"1.0"}`},
		{"version twice", `{"version":"1.0","version":"1.0"}`},
		{"option twice, once null", strings.Replace(whole, `"fuse_unk":false`, `"fuse_unk":true,"fuse_unk":null`, 1)},
		{"token twice", strings.Replace(whole, `"abc":257`, `"ab":257`, 1)},
		{"id twice", strings.Replace(whole, `"abc":257`, `"abc":256`, 1)},
		{"id too high", strings.Replace(whole, `"abc":257`, `"abc":2000000000`, 1)},
		{"id of too many digits", strings.Replace(whole, `"abc":257`, `"abc":99999999999999999999999`, 1)},
		{"id negative", strings.Replace(whole, `"abc":257`, `"abc":-1`, 1)},
		{"id a fraction", strings.Replace(whole, `"abc":257`, `"abc":257.5`, 1)},
		{"merge of no tokens", string(smallFile(map[string]any{"model.merges": []string{"x y"}}))},
		{"merge of three", string(smallFile(map[string]any{"model.merges": []string{"a b c"}}))},
		{"merge of one", string(smallFile(map[string]any{"model.merges": [][]string{{"a"}}}))},
		{"half a surrogate", strings.Replace(whole, `"abc"`, `"\ud800"`, 1)},
		{"added id elsewhere", string(smallFile(added(400, "<s>")))},
		{"added id of another", string(smallFile(added(97, "<s>")))},
		{"added id negative", string(smallFile(added(-1, "<s>")))},
		{"added empty", string(smallFile(added(259, "")))},
		{"added long", string(smallFile(added(259, strings.Repeat("x", 5000))))},
		{"added unknown flag", string(smallFile(map[string]any{"added_tokens": flagged(object{"id": 259, "content": "<s>", "lstripp": true})}))},
		{"template of an unknown id", string(smallFile(map[string]any{"post_processor": template("<s>", "x", 9999)}))},
	} {
		_, err := bpe.Parse([]byte(test.file), bpe.Options{Experimental: true})
		if !errors.Is(err, bpe.ErrCorrupt) {
			t.Errorf("%s: Parse = %v, want ErrCorrupt", test.name, err)
		}
	}
}

// TestHoles checks that a vocabulary can skip ids, which then have no token.
func TestHoles(t *testing.T) {
	t.Parallel()
	file := strings.Replace(string(smallFile(map[string]any{"added_tokens": []object{}})), `"abc":257`, `"abc":5000`, 1)
	tok := parseFile(t, []byte(file))
	checkIDs(t, "abc", encode(t, tok, "abc", bpe.EncodeOptions{}), []int32{5000})
	far := strings.Replace(file, `"abc":5000`, `"abc":4194303`, 1)
	if _, err := bpe.Parse([]byte(far), bpe.Options{}); !errors.Is(err, bpe.ErrUnsupported) || !strings.Contains(err.Error(), "ids up to 4194303 for only 259 tokens") {
		t.Errorf("an id far from the others: %v", err)
	}
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

// TestExperimental checks that Kimi is rejected unless Options.Experimental is set.
func TestExperimental(t *testing.T) {
	if raceEnabled {
		t.Skip(oneGoroutine)
	}
	t.Parallel()
	checkKimi(t, fstest.MapFS{bpe.FileJSON: {Data: edit(t, "gpt-oss", map[string]any{"pre_tokenizer": splitPart(bpe.PatternKimi, "Isolated", false)})}})
}

// checkKimi checks that a folder is Kimi's and needs Options.Experimental, and returns its tokenizer.
func checkKimi(t *testing.T, folder fstest.MapFS) *bpe.Tokenizer {
	t.Helper()
	if _, err := bpe.Load(folder, bpe.Options{}); !errors.Is(err, bpe.ErrExperimental) {
		t.Errorf("Load = %v, want ErrExperimental", err)
	}
	tok, err := bpe.Load(folder, bpe.Options{Experimental: true})
	if err != nil {
		t.Fatal(err)
	}
	if tok.Family() != bpe.FamilyKimi {
		t.Errorf("Family() = %s", tok.Family())
	}
	return tok
}

// TestUnknownPattern checks that an unknown pattern needs Options.Experimental.
func TestUnknownPattern(t *testing.T) {
	t.Parallel()
	for _, pre := range []object{
		splitPart(`\p{L}+|\p{N}`, "Isolated", false),
		splitPart(bpe.PatternO200K, "MergedWithNext", false),
		{"type": "Sequence", "pretokenizers": []object{{"type": "Digits", "individual_digits": false}, {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}}},
	} {
		file := smallFile(map[string]any{"pre_tokenizer": pre})
		raw := marshal(pre)
		if _, err := bpe.Parse(file, bpe.Options{}); !errors.Is(err, bpe.ErrExperimental) || !strings.Contains(err.Error(), string(raw)) {
			t.Errorf("Parse with %s = %v, want ErrExperimental with it", raw, err)
		}
		tok, err := bpe.Parse(file, bpe.Options{Experimental: true})
		if err != nil {
			t.Errorf("Parse with %s = %v", raw, err)
			continue
		}
		if tok.Family() != bpe.FamilyOther {
			t.Errorf("Family() with %s = %s", raw, tok.Family())
		}
	}
}

// kimiFolder returns Kimi's configuration with a rank file from the DeepSeek vocabulary.
func kimiFolder(tb testing.TB) fstest.MapFS {
	tb.Helper()
	base := bpetest.Tokenizer(tb, "deepseek-v3")
	seen := map[string]bool{}
	var words [][]byte
	for b := range 256 {
		words = append(words, []byte{byte(b)})
		seen[string([]byte{byte(b)})] = true
	}
	for id := range int32(base.VocabSize()) {
		if w, err := base.Bytes(id); err == nil && len(w) > 0 && !seen[string(w)] {
			seen[string(w)] = true
			words = append(words, w)
		}
	}
	for n := 0; len(words) < 163584; n++ { // the number of ranks determines the ids of the special tokens
		w := fmt.Appendf(nil, "\x00filler %d", n)
		words = append(words, w)
	}
	var ranks strings.Builder
	for i, w := range words[:163584] {
		fmt.Fprintf(&ranks, "%s %d\n", base64.StdEncoding.EncodeToString(w), i)
	}
	return fstest.MapFS{
		bpe.FileTiktoken: {Data: []byte(ranks.String())},
		bpe.FileConfig:   {Data: bpetest.Read(tb, "kimi-k2", bpe.FileConfig)},
	}
}

// TestTiktoken checks that ranks merge as in tiktoken, special tokens have the right ids, and the
// input is split where Kimi's own code splits it.
func TestTiktoken(t *testing.T) {
	if raceEnabled {
		t.Skip(oneGoroutine)
	}
	t.Parallel()
	folder := kimiFolder(t)
	tok := checkKimi(t, folder)
	ranks := map[string]int32{}
	for line := range strings.Lines(string(folder[bpe.FileTiktoken].Data)) {
		var word string
		var rank int32
		if _, err := fmt.Sscan(line, &word, &rank); err != nil {
			t.Fatal(err)
		}
		raw, err := base64.StdEncoding.DecodeString(word)
		if err != nil {
			t.Fatal(err)
		}
		ranks[string(raw)] = rank
	}
	split := compilePattern(t, bpe.PatternKimi)
	slow := func(text string) (ids []int32) {
		s := []rune(text)
		for at := 0; at < len(s); {
			end := at
			split(s, at, func(e int) bool { end = e; return true })
			ids = append(ids, tiktokenMerge(ranks, string(s[at:end]))...)
			at = end
		}
		return ids
	}
	rng := rand.New(rand.NewPCG(7, 7))
	for _, text := range hostileTexts(t, rng, 2000) {
		if checkIDs(t, text, encode(t, tok, text, bpe.EncodeOptions{Added: bpe.AddedNone}), slow(text)) {
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

// tiktokenMerge is tiktoken's byte_pair_merge.
func tiktokenMerge(ranks map[string]int32, word string) []int32 {
	if id, ok := ranks[word]; ok {
		return []int32{id}
	}
	var parts []string
	for i := range len(word) {
		parts = append(parts, word[i:i+1])
	}
	parts = mergePairs(parts, func(a, b string) int {
		if r, ok := ranks[a+b]; ok {
			return int(r)
		}
		return math.MaxInt
	})
	var ids []int32
	for _, p := range parts {
		ids = append(ids, ranks[p])
	}
	return ids
}

// TestTiktokenCorrupt checks that a damaged rank file or configuration is rejected.
func TestTiktokenCorrupt(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	for b := range 256 {
		fmt.Fprintf(&all, "%s %d\n", base64.StdEncoding.EncodeToString([]byte{byte(b)}), b)
	}
	good := all.String()
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
	if _, ok := tok.ID("no such token"); ok {
		t.Error("ID found a missing token")
	}
	if n := tok.VocabSize(); n != 151669 {
		t.Errorf("VocabSize() = %d, want 151669", n)
	}
	if n := len(tok.Added()); n != 26 {
		t.Errorf("%d added tokens, want 26", n)
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
