package bpe_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
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
	return withFiles(fstest.MapFS{bpe.FileJSON: {Data: bpetest.Read(tb, name, bpe.FileJSON)}}, files)
}

func withFiles(folder fstest.MapFS, files map[string]string) fstest.MapFS {
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
	return withFiles(fstest.MapFS{bpe.FileJSON: {Data: marshal(file)}}, files)
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
	config := unmarshal[object](tb, bpetest.Read(tb, name, bpe.FileConfig))
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
			models := []string{`{"model_type": "` + types[name] + `", "transformers_version": "4.51.0"}`}
			if name == "qwen3" || name == "deepseek-v3" { // one reading is enough for the others
				models = append(models, "")
			}
			for _, model := range models {
				files := map[string]string{bpe.FileConfig: configOf(t, name, nil)}
				if model != "" {
					files["config.json"] = model
				}
				tok, err := bpe.Load(folderOf(t, name, files), bpe.Options{})
				if name == "qwen3.5" && err != nil && strings.Contains(err.Error(), "load different tokenizers") {
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

// TestAutoRefused checks that the error for a folder names the file and the field. Without a text the
// folder loads.
func TestAutoRefused(t *testing.T) {
	t.Parallel()
	qwen := func(file, text string) fstest.MapFS { return baseFolder("qwen2", map[string]string{file: text}) }
	text := func(text string) fstest.MapFS { return qwen(bpe.FileConfig, text) }
	with := func(key string, value any) fstest.MapFS {
		return text(baseConfig(func(c object) { c[key] = value }))
	}
	decoder := func(id string, token object) fstest.MapFS { return with("added_tokens_decoder", object{id: token}) }
	vocab := withFiles(with("tokenizer_file", nil), map[string]string{"vocab.json": "{}"})
	llama := baseFolder("llama", map[string]string{bpe.FileConfig: `{"tokenizer_class": "LlamaTokenizer", "legacy": true}`})
	// The releases 5.3 to 5.20, which share one name, disagree on this one.
	both := withFiles(maps.Clone(llama), map[string]string{"config.json": `{"model_type": "deepseek_v3"}`})
	const differ, change = "makes transformers 5.3 and 5.20 load different tokenizers", "change the field here and on the server"
	oneID, wantID := oneIDFolder()
	type only = []chat.Transformers
	old := only{chat.Transformers457}
	for i, tt := range []struct {
		folder   fstest.MapFS
		want     string
		releases []chat.Transformers
	}{
		{with("split_special_tokens", true), "tokenizer_config.json: split_special_tokens would", nil},
		{with("add_prefix_space", true), "tokenizer_config.json: add_prefix_space changes", nil},
		{with("added_tokens_decoder", nil), "tokenizer_config.json: added_tokens_decoder is null, want an object", nil},
		{decoder("1", object{"content": "x", "lstrip": 1}), "added_tokens_decoder.1.lstrip is a number, want true or false", nil},
		{decoder("1", object{"content": "x", "strip": true}), "added_tokens_decoder.1.strip is not a field", nil},
		{decoder("01", object{"content": "x"}), "added_tokens_decoder.01 is not a token id", nil},
		{with("eos_token", 5), "tokenizer_config.json: eos_token is a number", nil},
		{with("tokenizer_class", ""), "tokenizer_class is empty", nil},
		{with("tokenizer_class", "BertTokenizer"), `tokenizer_class is the class "BertTokenizer"`, nil},
		{with("auto_map", object{"AutoTokenizer": []any{"a.B", nil}}), "tokenizer_config.json: auto_map makes the server run code", nil},
		{with("extra_special_tokens", []any{1}), "tokenizer_config.json: extra_special_tokens", nil},
		{with("bos_token", "<fresh>"), "", nil},
		{text(`{"a": 1, "a": 2}`), `tokenizer_config.json: corrupt tokenizer: a: duplicate key (byte 9)`, nil},
		{text(`{"bos_token": {"a": 1, "a": 2}}`), "bos_token: a: duplicate key", nil},
		{text(`[]`), "tokenizer_config.json: corrupt tokenizer", nil},
		{text(`{"extra_special_tokens":` + strings.Repeat("[", 1e6)), "nested deeper than", nil},
		{text(`{} x`), "where the end is expected", nil},
		{qwen("config.json", `{"model_type": 7}`), "config.json: model_type is a number, want a string", nil},
		{oneID, wantID, old},

		// Only release 4.57 does not read tokenizer.json then. It reads vocab.json, or fails without.
		{with("tokenizer_file", "other.json"), "tokenizer_config.json: tokenizer_file selects a file other than", nil},
		{with("tokenizer_file", nil), "", nil},
		{with("tokenizer_file", nil), "", chat.AllTransformers()[1:]},
		{with("tokenizer_file", nil), "transformers 4.57 cannot load the folder: tokenizer_config.json: tokenizer_file is null", old},
		{vocab, "tokenizer_config.json: tokenizer_file is null, so transformers 4.57 reads vocab.json instead of tokenizer.json: remove the field here and on the server", nil},
		{vocab, "", only{chat.Transformers523}},

		{llama, "tokenizer_config.json: tokenizer_class makes transformers 4.57 and 5.3 load different tokenizers", nil},
		{both, differ + ", although tokens.transformers 5.0 covers both: " + change, only{chat.Transformers50}},
		{both, differ + ": set tokens.transformers to the server's release, or " + change, only{chat.Transformers50, chat.Transformers521}},

		// Python's json also reads NaN, Infinity and -Infinity. NaN is true in Python.
		{text(`{"split_special_tokens": NaN}`), "split_special_tokens would", old},
		{text(`{"split_special_tokens": -Infinity}`), "split_special_tokens would", old},
		{text(`{"tokenizer_class": "Qwen2Tokenizer", "split_special_tokens": 0e5}`), "", old},
		{text(`{"tokenizer_class": "Qwen2Tokenizer", "eos_token": Infinity}`), "eos_token is a number", old},
		{text(`{"x": nan}`), `"n" where a value is expected`, old},
		{text(`{"x": -NaN}`), `"-" where a number is expected`, old},
		{text(`{"x": +Infinity}`), `"+" where a value is expected`, old},
		{text(`{"x": Infinity0}`), `"0" where ',' or '}' is expected`, old},
	} {
		_, err := bpe.Load(tt.folder, bpe.Options{Releases: tt.releases})
		known := errors.Is(err, bpe.ErrUnsupported) || errors.Is(err, bpe.ErrCorrupt)
		if tt.want == "" && err != nil || tt.want != "" && (!known || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("case %d, releases %v: %v, want %q", i, tt.releases, err, tt.want)
		}
	}
}

// oneIDFolder returns a folder with two added tokens of one id, and the error for it: a new token gets
// the id that a token of the vocabulary has, because the vocabulary has a hole.
func oneIDFolder() (folder fstest.MapFS, want string) {
	file := maps.Clone(autoBases()[0].file)
	model := maps.Clone(file["model"].(object))
	vocab := maps.Clone(model["vocab"].(map[string]int))
	n := len(vocab)
	vocab["zz"] = n + 2
	model["vocab"], file["model"] = vocab, model
	file["added_tokens"] = []object{addedPart(n+1, "<|endoftext|>", "special")}
	return fstest.MapFS{bpe.FileJSON: {Data: marshal(file)}, bpe.FileConfig: {Data: marshal(object{
		"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": object{"1": object{"content": "<new>"}, "2": object{"content": "zz"}},
	})}}, fmt.Sprintf(`tokens "zz" and "<new>" have the same id %d`, n+2)
}

// TestAutoPythonNumbers checks that configuration files can have NaN, Infinity and -Infinity in any
// field, as Python's json writes them, but tokenizer.json cannot.
func TestAutoPythonNumbers(t *testing.T) {
	t.Parallel()
	var digests []string
	for _, files := range []map[string]string{
		nil,
		{"config.json": `{"model_type": "qwen3", "time_step_limit": [0.0, Infinity], "rope": {"a": NaN, "b": [-Infinity]}, "c": NaN}`},
		{bpe.FileConfig: `{"longest": Infinity, "extra": [NaN, -Infinity], ` + baseConfig(func(object) {})[1:]},
	} {
		tok, err := bpe.Load(baseFolder("qwen2", files), bpe.Options{})
		if err != nil {
			t.Fatalf("%v: %v", files, err)
		}
		digests = append(digests, tok.Digest())
	}
	if len(slices.Compact(digests)) != 1 {
		t.Errorf("digests %v", digests)
	}
	if _, err := bpe.Parse([]byte(`{"version": NaN}`), bpe.Options{}); err == nil || !strings.Contains(err.Error(), `"N" where a string is expected`) {
		t.Errorf("tokenizer.json: %v", err)
	}
}

// TestAutoReleases checks that a folder on which releases disagree loads as each of them reads it.
func TestAutoReleases(t *testing.T) {
	t.Parallel()
	folder := baseFolder("llama", map[string]string{bpe.FileConfig: `{"tokenizer_class": "LlamaTokenizer", "legacy": true}`})
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
	if err == nil || !strings.Contains(err.Error(), "set tokenizer_class to PreTrainedTokenizerFast") {
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
		var tok *bpe.Tokenizer
		var err error
		start := time.Now()
		used := allocated(func() { tok, err = bpe.Load(folder, bpe.Options{Experimental: true}) })
		took := time.Since(start)
		size := len(config) + len(model) + len(special) + len(added)
		if used > 64<<20+uint64(size)*2000 || took > 20*time.Second {
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
