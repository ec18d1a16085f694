package model

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// TestReadEngine: the values of the engine in the files beside the tokenizer.
func TestReadEngine(t *testing.T) {
	t.Parallel()
	tok := bpetest.Tokenizer(t, "qwen3")
	ends, err := chat.Parse("t", "x", chat.Options{EOSToken: "<|im_end|>"})
	if err != nil {
		t.Fatal(err)
	}
	unknown, err := chat.Parse("t", "x", chat.Options{EOSToken: "<nothing>"})
	if err != nil {
		t.Fatal(err)
	}
	type files = map[string]string
	for _, tt := range []struct {
		name     string
		files    files
		template *chat.Template
		vocab    int
		stops    []int32
		err      string
	}{
		{name: "nothing", template: unknown},
		{name: "the tokenizer's end of text", template: ends, stops: []int32{151645}},
		{name: "config.json before it", files: files{"config.json": `{"eos_token_id": 7, "vocab_size": 151936}`}, template: ends, vocab: 151936, stops: []int32{7}},
		{name: "generation_config.json before that", files: files{"config.json": `{"eos_token_id": 7}`, "generation_config.json": `{"eos_token_id": [9, 8, 9]}`}, template: ends, stops: []int32{8, 9}},
		{name: "one id", files: files{"generation_config.json": `{"eos_token_id": 5, "pad_token_id": 6}`}, template: ends, stops: []int32{5}},
		{name: "null", files: files{"config.json": `{"eos_token_id": null, "vocab_size": null}`, "generation_config.json": `{"eos_token_id": null}`}, template: ends, stops: []int32{151645}},
		{name: "harmony", files: files{"generation_config.json": `{"eos_token_id": [200002, 199999, 200012]}`}, template: ends, stops: []int32{199999, 200002, 200012}},
		{name: "a model with images", files: files{"config.json": `{"text_config": {"vocab_size": 152064, "eos_token_id": [3]}}`}, template: unknown, vocab: 152064, stops: []int32{3}},
		{name: "smaller than the tokenizer", files: files{"config.json": `{"vocab_size": 1000}`}, template: unknown, vocab: tok.VocabSize()},
		{name: "no JSON", files: files{"generation_config.json": `{`}, template: ends, err: "generation_config.json: "},
		{name: "a text", files: files{"generation_config.json": `{"eos_token_id": "x"}`}, template: ends, err: "generation_config.json: "},
		{name: "no size", files: files{"config.json": `{"vocab_size": -1}`}, template: ends, err: "config.json: vocab_size is -1"},
	} {
		dir := t.TempDir()
		for name, text := range tt.files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		m := &prompt.Model{Tokenizer: tok, Template: tt.template}
		err := readEngine(dir, m)
		switch {
		case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
			t.Errorf("%s: %v, want %q", tt.name, err, tt.err)
		case tt.err == "" && (err != nil || m.VocabSize != tt.vocab || !slices.Equal(m.StopIDs, tt.stops)):
			t.Errorf("%s: %d %v %v, want %d %v", tt.name, m.VocabSize, m.StopIDs, err, tt.vocab, tt.stops)
		}
	}
}
