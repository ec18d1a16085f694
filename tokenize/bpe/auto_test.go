package bpe_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// folderOf returns a folder with a stored tokenizer.json and other files.
func folderOf(tb testing.TB, name string, files map[string]string) fstest.MapFS {
	tb.Helper()
	folder := fstest.MapFS{bpe.FileJSON: {Data: bpetest.Read(tb, name, bpe.FileJSON)}}
	for name, text := range files {
		folder[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return folder
}

// baseFolder returns a folder with the small tokenizer of this name and other files.
func baseFolder(name string, files map[string]string) fstest.MapFS {
	b := autoBases()[slices.IndexFunc(autoBases(), func(b autoBase) bool { return b.name == name })]
	file := maps.Clone(b.file)
	file["added_tokens"] = b.added
	folder := fstest.MapFS{bpe.FileJSON: {Data: marshal(file)}}
	for name, text := range files {
		folder[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return folder
}

// baseConfig returns the tokenizer_config.json of the small tokenizer qwen2, modified by change.
func baseConfig(change func(config object)) string {
	decoder := object{}
	for _, a := range autoBases()[0].added {
		token := maps.Clone(a)
		delete(token, "id")
		decoder[fmt.Sprint(a["id"])] = token
	}
	config := object{"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": decoder}
	change(config)
	return string(marshal(config))
}

// configOf returns the tokenizer_config.json of a stored tokenizer, modified by change.
func configOf(tb testing.TB, name string, change func(config object)) string {
	tb.Helper()
	var config object
	if err := json.Unmarshal(bpetest.Read(tb, name, bpe.FileConfig), &config); err != nil {
		tb.Fatal(err)
	}
	if change != nil {
		change(config)
	}
	return string(marshal(config))
}

// TestAutoAddedTokenFlag checks that a flag in added_tokens_decoder that tokenizer.json does not
// have changes the ids. The expected ids come from AutoTokenizer.
func TestAutoAddedTokenFlag(t *testing.T) {
	t.Parallel()
	rstrip := configOf(t, "qwen3", func(c object) {
		c["added_tokens_decoder"].(object)["151657"].(object)["rstrip"] = true
	})
	const text = "<|im_start|>user\nPrint <tool_call> now please<|im_end|>\n"
	alone := bpetest.Tokenizer(t, "qwen3")
	for _, tt := range []struct {
		config string
		want   []int32
	}{
		{configOf(t, "qwen3", nil), []int32{151644, 872, 198, 8994, 220, 151657, 1431, 4486, 151645, 198}},
		{rstrip, []int32{151644, 872, 198, 8994, 220, 151657, 3328, 4486, 151645, 198}},
	} {
		tok, err := bpe.Load(folderOf(t, "qwen3", map[string]string{bpe.FileConfig: tt.config}), bpe.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := encode(t, tok, text, bpe.EncodeOptions{}); !slices.Equal(got, tt.want) {
			t.Errorf("ids %v, want %v", got, tt.want)
		}
		if same := tok.Digest() == alone.Digest(); same == (tt.config == rstrip) {
			t.Errorf("digest equal to that of tokenizer.json: %t", same)
		}
	}
}

// TestAutoPublished checks that published folders load with all releases, as tokenizer.json alone.
func TestAutoPublished(t *testing.T) {
	t.Parallel()
	types := map[string]string{
		"qwen2.5": "qwen2", "qwen3": "qwen3", "llama3.1": "llama", "deepseek-v3": "deepseek_v3", "gpt-oss": "gpt_oss",
		"mistral-nemo-tekken": "mistral", "gemma3": "gemma3", "glm4.5": "glm4_moe", "glm5": "glm_moe_dsa", "deepseek-v4": "deepseek_v4",
		"command-r-plus": "cohere", "qwen3.5": "qwen3_5",
	}
	for _, name := range slices.Sorted(maps.Keys(types)) {
		if !bpetest.Installed(name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			alone := bpetest.Tokenizer(t, name)
			files := map[string]string{bpe.FileConfig: configOf(t, name, nil)}
			for _, model := range []string{"", `{"model_type": "` + types[name] + `", "transformers_version": "4.51.0"}`} {
				if files["config.json"] = model; model == "" {
					delete(files, "config.json")
					if name != "qwen3" && name != "deepseek-v3" {
						continue // one reading is enough for the large ones
					}
				}
				tok, err := bpe.Load(folderOf(t, name, files), bpe.Options{})
				if name == "qwen3.5" && err != nil && strings.Contains(err.Error(), "load the folder as different tokenizers") {
					tok, err = bpe.Load(folderOf(t, name, files), bpe.Options{Releases: []chat.Transformers{chat.Transformers523}})
				}
				if err != nil {
					t.Errorf("config.json %q: %v", model, err)
					continue
				}
				for _, text := range []string{"Hello  world, it's 12345\n\n  foo <tool_call> bar", "<|im_start|>user\n 漢字 é", "  leading\t<bos>"} {
					if got, want := encode(t, tok, text, bpe.EncodeOptions{}), encode(t, alone, text, bpe.EncodeOptions{}); !slices.Equal(got, want) {
						t.Errorf("%q: ids %v, want %v", text, got, want)
					}
				}
			}
		})
	}
}

// TestAutoRefused checks that the error for an unmerged field names the file and the field.
func TestAutoRefused(t *testing.T) {
	t.Parallel()
	with := func(key string, value any) string {
		return baseConfig(func(c object) { c[key] = value })
	}
	for _, tt := range []struct{ file, text, want string }{
		{bpe.FileConfig, with("split_special_tokens", true), "tokenizer_config.json: split_special_tokens would"},
		{bpe.FileConfig, with("add_prefix_space", true), "tokenizer_config.json: add_prefix_space changes"},
		{bpe.FileConfig, with("added_tokens_decoder", nil), "tokenizer_config.json: added_tokens_decoder is null, want an object"},
		{bpe.FileConfig, with("added_tokens_decoder", object{"1": object{"content": "x", "lstrip": 1}}), "added_tokens_decoder.1.lstrip is a number, want true or false"},
		{bpe.FileConfig, with("added_tokens_decoder", object{"1": object{"content": "x", "strip": true}}), "added_tokens_decoder.1.strip is not a field"},
		{bpe.FileConfig, with("added_tokens_decoder", object{"01": object{"content": "x"}}), "added_tokens_decoder.01 is not an id"},
		{bpe.FileConfig, with("eos_token", 5), "tokenizer_config.json: eos_token is a number"},
		{bpe.FileConfig, with("tokenizer_class", "BertTokenizer"), `tokenizer_class is the class "BertTokenizer"`},
		{bpe.FileConfig, with("auto_map", object{"AutoTokenizer": []any{"a.B", nil}}), "tokenizer_config.json: auto_map makes the server run code"},
		{bpe.FileConfig, with("extra_special_tokens", []any{1}), "tokenizer_config.json: extra_special_tokens"},
		{bpe.FileConfig, with("bos_token", "<fresh>"), ""},
		{bpe.FileConfig, `{"a": 1, "a": 2}`, `tokenizer_config.json: corrupt tokenizer: a: given twice in one object (byte 9)`},
		{bpe.FileConfig, `{"bos_token": {"a": 1, "a": 2}}`, "bos_token: a: given twice in one object"},
		{bpe.FileConfig, `[]`, "tokenizer_config.json: corrupt tokenizer"},
		{bpe.FileConfig, `{"extra_special_tokens":` + strings.Repeat("[", 1e6), "nested deeper than"},
		{bpe.FileConfig, `{} x`, "where the end is expected"},
		{bpe.FileConfig, with("tokenizer_file", nil), ""},
		{bpe.FileConfig, with("tokenizer_file", "other.json"), "tokenizer_config.json: tokenizer_file selects a file other than"},
		{"config.json", `{"model_type": 7}`, "config.json: model_type is a number, want a string"},
	} {
		_, err := bpe.Load(baseFolder("qwen2", map[string]string{tt.file: tt.text}), bpe.Options{})
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%.80s: %v", tt.text, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%.80s: %v, want %q", tt.text, err, tt.want)
		case tt.want != "" && !errors.Is(err, bpe.ErrUnsupported) && !errors.Is(err, bpe.ErrCorrupt):
			t.Errorf("%v is of no kind", err)
		}
	}
}

// TestAutoOneID checks the error for two added tokens with one id: a new one gets the id that a token
// of the vocabulary has, because the vocabulary has a hole.
func TestAutoOneID(t *testing.T) {
	t.Parallel()
	b := autoBases()[0]
	file, model := maps.Clone(b.file), maps.Clone(b.file["model"].(object))
	vocab := maps.Clone(model["vocab"].(map[string]int))
	n := len(vocab)
	vocab["zz"] = n + 2
	model["vocab"], file["model"] = vocab, model
	file["added_tokens"] = []object{addedPart(n+1, "<|endoftext|>", "special")}
	folder := fstest.MapFS{bpe.FileJSON: {Data: marshal(file)}, bpe.FileConfig: {Data: marshal(object{
		"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": object{"1": object{"content": "<new>"}, "2": object{"content": "zz"}},
	})}}
	_, err := bpe.Load(folder, bpe.Options{Releases: []chat.Transformers{chat.Transformers457}})
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf(`tokens "zz" and "<new>" have the same id %d`, n+2)) {
		t.Error(err)
	}
}

// TestAutoPythonNumbers checks that configuration files can have NaN, Infinity and -Infinity in any
// field, as Python's json writes them, but tokenizer.json cannot.
func TestAutoPythonNumbers(t *testing.T) {
	t.Parallel()
	alone, err := bpe.Load(baseFolder("qwen2", nil), bpe.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{
		"config.json":  `{"model_type": "qwen3", "time_step_limit": [0.0, Infinity], "rope": {"a": NaN, "b": [-Infinity]}, "c": NaN}`,
		bpe.FileConfig: baseConfig(func(c object) { c["x"] = "y" })[1:],
	} {
		if file == bpe.FileConfig {
			text = `{"longest": Infinity, "extra": [NaN, -Infinity], ` + text
		}
		tok, err := bpe.Load(baseFolder("qwen2", map[string]string{file: text}), bpe.Options{})
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if tok.Digest() != alone.Digest() {
			t.Errorf("%s: another digest", file)
		}
	}
	for _, tt := range []struct{ text, want string }{
		{`{"split_special_tokens": NaN}`, "split_special_tokens would"}, // NaN is true in Python
		{`{"split_special_tokens": -Infinity}`, "split_special_tokens would"},
		{`{"tokenizer_class": "Qwen2Tokenizer", "split_special_tokens": 0e5}`, ""},
		{`{"tokenizer_class": "Qwen2Tokenizer", "eos_token": Infinity}`, "eos_token is a number"},
		{`{"x": nan}`, `"n" where a value is expected`},
		{`{"x": -NaN}`, `"-" where a number is expected`},
		{`{"x": +Infinity}`, `"+" where a value is expected`},
		{`{"x": Infinity0}`, `"0" where ',' or '}' is expected`},
	} {
		_, err := bpe.Load(baseFolder("qwen2", map[string]string{bpe.FileConfig: tt.text}), bpe.Options{Releases: []chat.Transformers{chat.Transformers457}})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.text, err, tt.want)
		}
	}
	if _, err := bpe.Parse([]byte(`{"version": NaN}`), bpe.Options{}); err == nil || !strings.Contains(err.Error(), `"N" where a string is expected`) {
		t.Errorf("tokenizer.json: %v", err)
	}
}

// TestAutoReleases checks that a folder on which releases disagree needs Options.Releases.
func TestAutoReleases(t *testing.T) {
	t.Parallel()
	folder := baseFolder("llama", map[string]string{bpe.FileConfig: `{"tokenizer_class": "LlamaTokenizer", "legacy": true}`})
	_, err := bpe.Load(folder, bpe.Options{})
	if err == nil || !strings.Contains(err.Error(), "tokenizer_config.json: tokenizer_class transformers 4.57 and 5.3 load the folder as different tokenizers") {
		t.Errorf("without a release: %v", err)
	}
	var digests []string
	for _, release := range chat.AllTransformers() {
		tok, err := bpe.Load(folder, bpe.Options{Releases: []chat.Transformers{release}})
		if err != nil {
			t.Fatal(err)
		}
		got := encode(t, tok, " a", bpe.EncodeOptions{})
		if metaspace := len(got) == 1; metaspace == (release == chat.Transformers457) {
			t.Errorf("transformers %s: ids %v", release, got)
		}
		digests = append(digests, tok.Digest())
	}
	if digests[0] == digests[1] || digests[1] != digests[len(digests)-1] {
		t.Errorf("digests %v", digests)
	}
}

// TestAutoTokenizerFile checks that with a tokenizer_file of null, only release 4.57 does not read
// tokenizer.json. It builds a tokenizer from vocab.json, or fails without one.
func TestAutoTokenizerFile(t *testing.T) {
	t.Parallel()
	folder := baseFolder("qwen2", map[string]string{bpe.FileConfig: baseConfig(func(c object) { c["tokenizer_file"] = nil })})
	for _, release := range chat.AllTransformers() {
		_, err := bpe.Load(folder, bpe.Options{Releases: []chat.Transformers{release}})
		want := release != chat.Transformers457
		if (err == nil) != want || !want && !strings.Contains(err.Error(), "tokenizer_config.json: tokenizer_file is null: transformers 4.57 cannot load the folder") {
			t.Errorf("transformers %s: %v", release, err)
		}
	}
	folder["vocab.json"] = &fstest.MapFile{Data: []byte("{}")}
	const want = "tokenizer_config.json: tokenizer_file is null, so transformers 4.57 reads vocab.json instead of tokenizer.json: remove it here and on the server"
	if _, err := bpe.Load(folder, bpe.Options{}); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("with vocab.json: %v, want %q", err, want)
	}
	if _, err := bpe.Load(folder, bpe.Options{Releases: []chat.Transformers{chat.Transformers523}}); err != nil {
		t.Error(err)
	}
}

// TestAutoTwoInOne checks a folder on which the releases 5.3 to 5.20, which share one name,
// disagree. If only that name is given, the error says to change the field.
func TestAutoTwoInOne(t *testing.T) {
	t.Parallel()
	folder := baseFolder("llama", map[string]string{
		bpe.FileConfig: `{"tokenizer_class": "LlamaTokenizer", "legacy": true}`, "config.json": `{"model_type": "deepseek_v3"}`,
	})
	const both = "transformers 5.3 and 5.20 load the folder as different tokenizers"
	for _, tt := range []struct {
		releases []chat.Transformers
		want     string
	}{
		{[]chat.Transformers{chat.Transformers50}, both + ", and tokens.transformers 5.0 covers both: change the field here and on the server"},
		{[]chat.Transformers{chat.Transformers50, chat.Transformers521}, both + ": set tokens.transformers to the server's release, or change the field here and on the server"},
	} {
		_, err := bpe.Load(folder, bpe.Options{Releases: tt.releases})
		if err == nil || !strings.HasSuffix(err.Error(), tt.want) {
			t.Errorf("%v: %v, want %q", tt.releases, err, tt.want)
		}
	}
}

// TestAutoOtherKind checks that the reading of release 5.3 is ignored for DeepSeek-V3. It makes a
// tokenizer of characters from a vocabulary of bytes, which no server uses.
func TestAutoOtherKind(t *testing.T) {
	t.Parallel()
	alone := bpetest.Tokenizer(t, "deepseek-v3")
	folder := folderOf(t, "deepseek-v3", map[string]string{
		bpe.FileConfig: configOf(t, "deepseek-v3", nil), "config.json": `{"model_type": "deepseek_v3"}`,
	})
	for _, releases := range [][]chat.Transformers{nil, {chat.Transformers50}} {
		tok, err := bpe.Load(folder, bpe.Options{Releases: releases})
		if err != nil {
			t.Errorf("%v: %v", releases, err)
		} else if tok.Digest() != alone.Digest() {
			t.Errorf("%v: another digest", releases)
		}
	}
	delete(folder, "config.json")
	_, err := bpe.Load(folder, bpe.Options{Releases: []chat.Transformers{chat.Transformers50}})
	if err == nil || !strings.Contains(err.Error(), "set it to PreTrainedTokenizerFast") {
		t.Errorf("without config.json: %v", err)
	}
}

// FuzzConfig checks that any tokenizer_config.json loads or is rejected quickly and cheaply.
func FuzzConfig(f *testing.F) {
	tokenizer := baseFolder("qwen2", nil)[bpe.FileJSON].Data
	seeds, err := filepath.Glob(filepath.Join("..", "..", "testdata", "tokenizers", "*", bpe.FileConfig))
	if err != nil || len(seeds) == 0 {
		f.Fatal("no seeds", err)
	}
	for _, path := range seeds {
		if raw, err := os.ReadFile(path); err == nil && len(raw) < 20_000 {
			f.Add(raw, []byte(`{"model_type": "qwen2"}`), []byte(`{}`), []byte(`{}`))
		}
	}
	f.Add([]byte(`{"bos_token": "a"}`), []byte(`{"tokenizer_class": "LlamaTokenizer"}`), []byte(`{"eos_token": {"content": "b"}}`), []byte(`{"x": 300}`))
	f.Fuzz(func(t *testing.T, config, model, special, added []byte) {
		folder := fstest.MapFS{
			bpe.FileJSON: {Data: tokenizer}, bpe.FileConfig: {Data: config}, "config.json": {Data: model},
			"special_tokens_map.json": {Data: special}, "added_tokens.json": {Data: added},
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := time.Now()
		tok, err := bpe.Load(folder, bpe.Options{Experimental: true})
		took := time.Since(start)
		runtime.ReadMemStats(&after)
		size := len(config) + len(model) + len(special) + len(added)
		if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20+uint64(size)*2000 || took > 20*time.Second {
			t.Errorf("%d bytes and %v for %d bytes", used, took, size)
		}
		if (tok == nil) == (err == nil) {
			t.Fatal("neither or both")
		}
		if err != nil && !errors.Is(err, bpe.ErrUnsupported) && !errors.Is(err, bpe.ErrCorrupt) && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v is of no kind", err)
		}
		if tok != nil {
			if _, err := tok.AppendTokens(nil, "a <tool_call> b<|im_end|>"); err != nil {
				t.Error(err)
			}
		}
	})
}
