package bpe_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

var autoConfigs = flag.Int("configs", 300, "random folders to compare with AutoTokenizer of the newest release")

// An autoAnswer is the result of AutoTokenizer for an autoCase.
type autoAnswer struct {
	IDs                   [][]int32
	Class, Error, Version string
}

// autoReleases are the releases by the beginning of a version.
var autoReleases = map[string]chat.Transformers{
	"4.57": chat.Transformers457, "5.3": chat.Transformers50, "5.20": chat.Transformers50, "5.21": chat.Transformers521,
	"5.22": chat.Transformers5222, "5.23": chat.Transformers523, "5.24": chat.Transformers523,
}

// An autoCase is a folder and texts to encode with its tokenizer.
type autoCase struct {
	Files map[string]string `json:"files"`
	Texts []string          `json:"texts"`
	base  string
}

func (c *autoCase) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", c.base)
	for _, name := range slices.Sorted(maps.Keys(c.Files)) {
		if name != bpe.FileJSON {
			fmt.Fprintf(&b, "%s %s\n", name, c.Files[name])
		}
	}
	return b.String()
}

// chars reports whether the vocabulary consists of characters.
func (c *autoCase) chars() bool {
	return c.base == "gemma" || c.base == "llama" || c.base == "llama first"
}

// compareAuto compares folders with AutoTokenizer, and logs how many have each outcome.
func compareAuto(t *testing.T, interpreter string, n int) {
	t.Helper()
	batch := min(2000, (n+1)/2)
	var mu sync.Mutex
	outcomes, compared, version, bad := map[string]int{}, 0, "", 0
	t.Run("batches", func(t *testing.T) {
		for first := 0; first < n; first += batch {
			t.Run(fmt.Sprint(first), func(t *testing.T) {
				t.Parallel()
				cases := make([]*autoCase, min(batch, n-first))
				for i := range cases {
					cases[i] = randomAuto(rand.New(rand.NewPCG(*seed, uint64(first+i))))
				}
				for i, want := range askScript[autoAnswer](t, interpreter, "auto.py", "auto", nil, cases) {
					outcome, problem, err := cases[i].judge(t, want)
					mu.Lock()
					version = want.Version
					outcomes[outcome]++
					if strings.HasPrefix(outcome, "compared") {
						compared++
					}
					if problem != "" {
						if bad++; bad <= 5 {
							t.Errorf("transformers %s, folder %d (seed %d): %s\n%serr %v", want.Version, first+i, *seed, problem, cases[i], err)
						}
					}
					mu.Unlock()
				}
			})
		}
	})
	for _, k := range slices.Sorted(maps.Keys(outcomes)) {
		t.Logf("transformers %s: %6d %s", version, outcomes[k], k)
	}
	t.Logf("transformers %s: %d of %d folders compared, %d differ", version, compared, n, bad)
	if compared < n/3 {
		t.Errorf("transformers %s: %d of %d folders compared: too many are refused", version, compared, n)
	}
}

// judge returns the outcome of a case and what is wrong with it.
func (c *autoCase) judge(t *testing.T, want autoAnswer) (outcome, problem string, err error) {
	t.Helper()
	release, ok := autoReleases[want.Version[:strings.LastIndexByte(want.Version, '.')]]
	if !ok {
		t.Fatalf("transformers %s: no rules are known", want.Version)
	}
	folder := withFiles(fstest.MapFS{}, c.Files)
	tok, err := bpe.Load(folder, bpe.Options{Experimental: true, Releases: []chat.Transformers{release}})
	switch {
	case err != nil && want.Error != "":
		return "refused by both", "", err
	case err != nil:
		if autoReason(err) == "" || !errors.Is(err, bpe.ErrUnsupported) && !errors.Is(err, bpe.ErrCorrupt) {
			problem = "a refusal that names no field"
		}
		return "refused here only: " + autoReason(err), problem, err
	case want.Error != "":
		return "refused by transformers only: " + shortened(want.Error), "", nil
	}
	outcome = "compared: " + c.base + " " + want.Class
	chars := want.Class == "LlamaTokenizer" || want.Class == "GemmaTokenizer"
	if release == chat.Transformers50 && want.Class != "TokenizersBackend" && c.chars() != chars {
		return outcome, "", nil // the release 5.0 has two readings, and a reading of the wrong kind is skipped
	}
	for k, text := range c.Texts {
		if got := encode(t, tok, text, bpe.EncodeOptions{}); !slices.Equal(got, want.IDs[k]) {
			return outcome, fmt.Sprintf("%q: ids %v, AutoTokenizer (%s) gives %v", text, got, want.Class, want.IDs[k]), nil
		}
	}
	all, err := bpe.Load(folder, bpe.Options{Experimental: true})
	if err == nil && all.Digest() != tok.Digest() && c.chars() == chars {
		problem = "another tokenizer without a release"
	}
	return outcome, problem, nil
}

var autoQuoted = regexp.MustCompile(`"(\\.|[^"\\])*"|[0-9]+`)

// autoField matches the file and the field in an error.
var autoField = regexp.MustCompile(`(tokenizer_config|config|special_tokens_map|added_tokens)\.json: [a-z_]+`)

// autoReason returns the field that is rejected, or "" if the error names none.
func autoReason(err error) string {
	field := autoField.FindString(err.Error())
	if field != "" && strings.Contains(err.Error(), "load different tokenizers") {
		field += ", releases differ"
	}
	return field
}

func shortened(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	if len(s) > 150 {
		s = s[:150]
	}
	return autoQuoted.ReplaceAllString(strings.ToValidUTF8(s, ""), "…")
}

// TestPeerAuto checks that random folders give the ids of AutoTokenizer of the newest release, or
// are rejected with the name of a field.
func TestPeerAuto(t *testing.T) {
	interpreter := python(t)
	t.Parallel()
	t.Logf("go test ./tokenize/bpe -run 'TestPeerAuto$' -seed %d -args -configs %d", *seed, *autoConfigs)
	compareAuto(t, interpreter, *autoConfigs)
}

// autoBase is a small tokenizer.json with its added tokens and words of its vocabulary.
type autoBase struct {
	name  string
	file  object
	added []object
	words []string
}

// A vocabulary is built token by token.
type vocabulary struct {
	ids    map[string]int
	merges [][2]string
}

func (v *vocabulary) add(s string) {
	if _, ok := v.ids[s]; !ok {
		v.ids[s] = len(v.ids)
	}
}

// grow adds the beginnings of a word and the merges that make them.
func (v *vocabulary) grow(word string) {
	runes := []rune(word)
	for k := 2; k <= len(runes); k++ {
		if _, ok := v.ids[string(runes[:k])]; !ok {
			v.merges = append(v.merges, [2]string{string(runes[:k-1]), string(runes[k-1 : k])})
			v.add(string(runes[:k]))
		}
	}
}

// base returns a tokenizer with this vocabulary.
func (v *vocabulary) base(name string, norm, pre any, decoder object, chars bool) autoBase {
	model := object{"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil, "fuse_unk": chars, "byte_fallback": chars, "vocab": v.ids, "merges": v.merges}
	if chars {
		model["unk_token"] = "<unk>"
	}
	return autoBase{name: name, file: object{
		"version": "1.0", "truncation": nil, "padding": nil, "normalizer": norm, "pre_tokenizer": pre, "post_processor": nil, "decoder": decoder, "model": model,
	}}
}

// autoBases are the pipelines that the classes of transformers build, and others.
var autoBases = sync.OnceValue(func() []autoBase {
	regex := func(expr string) object {
		return object{"type": "Split", "pattern": object{"Regex": expr}, "behavior": "Isolated", "invert": false}
	}
	bytes := object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}
	gpt2 := object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}
	sequence := func(parts ...object) object { return object{"type": "Sequence", "pretokenizers": parts} }
	nfc := object{"type": "NFC"}
	var out []autoBase
	for _, b := range []struct {
		name      string
		norm, pre any
	}{
		{"qwen2", nfc, sequence(regex(bpe.PatternCL100K), bytes)},
		{"qwen3.5", nfc, sequence(regex(bpe.PatternQwen35), bytes)},
		{"llama3", nil, sequence(regex(bpe.PatternLlama3), bytes)},
		{"gpt2", nil, gpt2},
		{"gpt-neox", nfc, gpt2},
		{"cohere", nfc, sequence(object{"type": "Digits", "individual_digits": true}, gpt2)},
	} {
		v := &vocabulary{ids: map[string]int{}}
		for c := range 256 {
			v.add(spell(byte(c)))
		}
		words := []string{"ab", "abc", " a", "to", "tool", "é", "\n\n", "中", " to", "12", "abc tool"}
		for _, w := range words {
			v.grow(spelled(w))
		}
		v.add("<in_vocab>")
		base := v.base(b.name, b.norm, b.pre, object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true}, false)
		n := len(v.ids)
		base.words = words
		base.added = []object{
			addedPart(v.ids["<in_vocab>"], "<in_vocab>"), addedPart(n, "<|endoftext|>", "special"), addedPart(n+1, "<|im_start|>", "special"),
			addedPart(n+2, "<|im_end|>", "special"), addedPart(n+3, "<tool_call>"), addedPart(n+4, "</tool_call>"),
		}
		out = append(out, base)
	}
	replace := object{"type": "Replace", "pattern": object{"String": " "}, "content": "▁"}
	decoders := []object{{"type": "Replace", "pattern": object{"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}}
	for _, b := range []struct {
		name      string
		norm, pre any
	}{
		{"llama", object{"type": "Sequence", "normalizers": []object{{"type": "Prepend", "prepend": "▁"}, replace}}, nil},
		{"llama first", nil, object{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false}},
		{"gemma", replace, object{"type": "Split", "pattern": object{"String": " "}, "behavior": "MergedWithPrevious", "invert": false}},
	} {
		v := &vocabulary{ids: map[string]int{}}
		for _, s := range []string{"<unk>", "<s>", "</s>"} {
			v.add(s)
		}
		for c := range 256 {
			v.add(fmt.Sprintf("<0x%02X>", c))
		}
		for _, w := range []string{"ab", "abc", "▁a", "to", "tool", "é", "▁▁", "中", "▁to"} {
			for _, c := range w {
				v.add(string(c))
			}
			v.grow(w)
		}
		base := v.base(b.name, b.norm, b.pre, object{"type": "Sequence", "decoders": decoders}, true)
		base.words = []string{"ab", "abc", " a", "to", "tool", "é", "  ", "中", " to"}
		base.added = []object{addedPart(0, "<unk>", "special"), addedPart(1, "<s>", "special"), addedPart(2, "</s>", "special"), addedPart(len(v.ids), "<tool_call>")}
		out = append(out, base)
	}
	return out
})

// A folderGenerator generates random folders.
type folderGenerator struct {
	charGenerator
	base  *autoBase
	named []string // contents in fields that name a token
}

var autoContents = []string{
	"<|endoftext|>", "<|im_end|>", "<tool_call>", "<in_vocab>", "<new>", "<new", "<pad>", "<s>", "</s>", "<unk>", "<bos>", "<mask>", "ab", "abc", "tool", "to", "é",
	"e\u0301", "\u212b", " x", "x ", "<a b>", "中", "\n", "▁to", "<PAD>", "<image>", "🙂",
}

func (m *folderGenerator) content() string {
	if m.one(3) {
		return m.base.added[m.IntN(len(m.base.added))]["content"].(string)
	}
	c := m.pick(autoContents...)
	m.named = append(m.named, c)
	return c
}

// token returns an added token with random flags, some missing.
func (m *folderGenerator) token(content string) object {
	o := object{"content": content}
	for _, flag := range []string{"single_word", "lstrip", "rstrip", "normalized", "special"} {
		if !m.one(6) {
			o[flag] = m.one(4)
		}
	}
	return o
}

// name returns a random value for a field that names a token.
func (m *folderGenerator) name() any {
	switch m.IntN(8) {
	case 0:
		return nil
	case 1:
		o := m.token(m.content())
		o["__type"] = "AddedToken"
		return o
	}
	return m.content()
}

func (m *folderGenerator) names() []any {
	out := []any{}
	for range m.IntN(4) {
		if v := m.name(); v != nil {
			out = append(out, v)
		}
	}
	return out
}

// wrong returns a value whose type is wrong for nearly every field.
func (m *folderGenerator) wrong() any {
	return []any{1, "x", true, nil, []any{1}, object{"a": 1}, []any{}, object{}, -0.5, ""}[m.IntN(10)]
}

func (m *folderGenerator) decoder() object {
	d := object{}
	top := 0
	for _, a := range m.base.added {
		id := a["id"].(int)
		top = max(top, id)
		if m.one(12) {
			continue
		}
		t := maps.Clone(a)
		delete(t, "id")
		if m.one(4) {
			flag := m.pick("single_word", "lstrip", "rstrip", "normalized", "special")
			t[flag] = t[flag] != true
			m.named = append(m.named, t["content"].(string))
		}
		d[fmt.Sprint(id)] = t
	}
	for range m.IntN(3) {
		id := top + 1 + m.IntN(3)
		if m.one(5) {
			id = m.IntN(top)
		}
		d[fmt.Sprint(id)] = m.token(m.content())
	}
	return d
}

func randomAuto(rng *rand.Rand) *autoCase {
	bases := autoBases()
	m := &folderGenerator{charGenerator: charGenerator{generator{rng}}, base: &bases[rng.IntN(len(bases))]}
	file := maps.Clone(m.base.file)
	file["added_tokens"] = m.base.added
	c := &autoCase{Files: map[string]string{}, base: m.base.name}
	config := object{}
	switch {
	case m.one(8):
	case m.one(20):
		config["tokenizer_class"] = m.pick("BertTokenizer", "T5TokenizerFast", "FooTokenizer", "TikTokenTokenizer")
	case m.one(3):
		config["tokenizer_class"] = m.pick("PreTrainedTokenizerFast", "PreTrainedTokenizer", "TokenizersBackend")
	case c.chars():
		config["tokenizer_class"] = m.pick("LlamaTokenizer", "LlamaTokenizerFast", "GemmaTokenizer", "GemmaTokenizerFast")
	default:
		config["tokenizer_class"] = m.pick("Qwen2Tokenizer", "Qwen2Tokenizer", "Qwen2TokenizerFast", "GPT2Tokenizer", "CohereTokenizerFast", "GPTNeoXTokenizer", "LlamaTokenizerFast", "Qwen3_5Tokenizer")
	}
	if m.one(2) {
		model := object{"model_type": m.pick("qwen2", "qwen3", "qwen3_moe", "qwen3_5", "llama", "mistral", "gemma3", "gpt_oss", "glm4_moe", "deepseek_v3", "phi3", "cohere", "gpt2", "gpt_neox", "granite", "olmo2", "minimax_m2", "kimi_k2", "internlm3", "")}
		if m.one(10) {
			model["tokenizer_class"] = m.pick("Qwen2Tokenizer", "LlamaTokenizerFast", "PreTrainedTokenizerFast", "GemmaTokenizer")
		}
		if m.one(10) {
			delete(model, "model_type")
		}
		c.Files["config.json"] = string(marshal(model))
	}
	legacy := m.one(3)
	if !legacy {
		config["added_tokens_decoder"] = m.decoder()
	}
	for _, name := range []string{"bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token"} {
		if m.one(3) {
			config[name] = m.name()
		}
	}
	if m.one(3) {
		config["additional_special_tokens"] = m.names()
	}
	switch m.IntN(6) {
	case 0:
		config["extra_special_tokens"] = m.names()
	case 1, 2:
		extra := object{}
		for range m.IntN(3) {
			if v := m.name(); v != nil {
				extra[m.pick("image_token", "video_token", "eos_token", "boi_token")] = v
			}
		}
		config["extra_special_tokens"] = extra
	}
	if m.one(6) {
		config[m.pick("image_token", "audio_bos_token")] = m.name()
	}
	if m.one(4) {
		config["add_prefix_space"] = m.one(8)
	}
	if m.one(3) {
		config["legacy"] = m.one(2)
	}
	for key, v := range map[string]any{
		"add_bos_token": m.one(2), "add_eos_token": m.one(2), "clean_up_tokenization_spaces": m.one(2), "model_max_length": 3, "errors": "replace",
		"do_lower_case": true, "use_default_system_prompt": m.one(2), "padding_side": "left", "sp_model_kwargs": object{}, "spaces_between_special_tokens": false,
		"split_special_tokens": m.one(20), "from_slow": m.one(20), "tokenizer_file": nil, "fix_mistral_regex": m.one(2),
	} {
		chance := 5
		if key == "tokenizer_file" {
			chance = 60
		}
		if m.one(chance) {
			config[key] = v
		}
	}
	if m.one(30) {
		config[m.pick("added_tokens_decoder", "additional_special_tokens", "extra_special_tokens", "bos_token", "tokenizer_class", "split_special_tokens", "legacy", "add_prefix_space", "image_token")] = m.wrong()
	}
	if !m.one(12) {
		c.Files[bpe.FileConfig] = string(marshal(config))
	}
	if legacy && m.one(2) || m.one(10) {
		special := object{}
		for _, name := range []string{"bos_token", "eos_token", "pad_token", "image_token"} {
			if m.one(2) {
				special[name] = m.content()
				if m.one(2) {
					special[name] = m.token(m.content())
				}
			}
		}
		if m.one(3) {
			special["additional_special_tokens"] = []any{m.content(), m.content()}
			if m.one(3) {
				special["additional_special_tokens"] = []any{m.token(m.content())}
			}
		}
		if m.one(6) {
			special["extra_special_tokens"] = []any{m.content(), m.token(m.content())}
		}
		c.Files["special_tokens_map.json"] = string(marshal(special))
	}
	if legacy && m.one(3) || m.one(10) {
		added := object{}
		for _, a := range m.base.added {
			added[a["content"].(string)] = a["id"]
		}
		if m.one(2) {
			added[m.content()] = 400 + m.IntN(5)
		}
		c.Files["added_tokens.json"] = string(marshal(added))
	}
	c.Files[bpe.FileJSON] = string(marshal(file))
	c.Texts = m.texts()
	return c
}

// texts returns texts of the named tokens, surrounded by characters that their flags depend on.
func (m *folderGenerator) texts() []string {
	around := []string{" ", "  ", "\n", "\t", "\u00a0", "a", "B", "1", ".", "_", "é", "e\u0301", "中", "x", "<", "\u3000"}
	around = append(around, m.base.words...)
	for _, a := range m.base.added {
		m.named = append(m.named, a["content"].(string))
	}
	texts := make([]string, 8)
	for i := range texts {
		var b strings.Builder
		for range 2 + m.IntN(8) {
			switch m.IntN(3) {
			case 0:
				b.WriteString(m.named[m.IntN(len(m.named))])
			case 1:
				b.WriteString(strings.ToUpper(around[m.IntN(len(around))]))
			default:
				b.WriteString(around[m.IntN(len(around))])
			}
		}
		texts[i] = b.String()
	}
	return texts
}
