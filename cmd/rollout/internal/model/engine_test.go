package model

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// TestReadEngine reads the engine's values from the files beside the tokenizer.
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
		{name: "config.json too", files: files{"config.json": `{"eos_token_id": 7, "vocab_size": 151936}`}, template: ends, vocab: 151936, stops: []int32{7, 151645}},
		{name: "generation_config.json too", files: files{"config.json": `{"eos_token_id": 7}`, "generation_config.json": `{"eos_token_id": [9, 8, 9]}`}, template: ends, stops: []int32{7, 8, 9, 151645}},
		{name: "one id", files: files{"generation_config.json": `{"eos_token_id": 5, "pad_token_id": 6}`}, template: ends, stops: []int32{5, 151645}},
		{name: "null", files: files{"config.json": `{"eos_token_id": null, "vocab_size": null}`, "generation_config.json": `{"eos_token_id": null}`}, template: ends, stops: []int32{151645}},
		{name: "a model with images", files: files{"config.json": `{"text_config": {"vocab_size": 152064, "eos_token_id": [3]}}`}, template: unknown, vocab: 152064, stops: []int32{3}},
		{name: "smaller than the tokenizer", files: files{"config.json": `{"vocab_size": 1000}`}, template: unknown, vocab: tok.VocabSize()},
		{name: "no JSON", files: files{"generation_config.json": `{`}, template: ends, err: "generation_config.json: "},
		{name: "no object", files: files{"config.json": `[7]`}, template: ends, err: "config.json: not an object"},
		{name: "a text", files: files{"generation_config.json": `{"eos_token_id": "x"}`}, template: unknown},
		{name: "no ids", files: files{"config.json": `{"eos_token_id": [[1], null, true, 2.0, -1, 4294967296, 3]}`}, template: unknown, stops: []int32{3}},
		{name: "no size", files: files{"config.json": `{"vocab_size": -1}`}, template: unknown},
		{name: "a size of 0", files: files{"config.json": `{"vocab_size": 0, "text_config": {"vocab_size": 152064}}`}, template: unknown, vocab: 152064},
		{name: "a size in words", files: files{"config.json": `{"vocab_size": "big", "text_config": 5}`}, template: unknown},
		{name: "too large a size", files: files{"config.json": `{"vocab_size": 1e400}`}, template: unknown},
		{name: "other letters", files: files{"config.json": `{"EOS_token_id": "x", "Vocab_Size": 7}`}, template: unknown},
		{name: "Python's numbers", files: files{"config.json": `{"time_step_limit": [0.0, Infinity], "a": NaN, "b": -Infinity, "vocab_size": 151936, "eos_token_id": 7}`}, template: unknown, vocab: 151936, stops: []int32{7}},
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

// readEngine finds the ids at which an engine stops in the files of published models. <|end|> of
// gpt-oss ends a message, not an output.
func TestReadEngineStops(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		model, config, generation string
		stops                     []int32
	}{
		{"qwen3", `{"eos_token_id": 151645, "vocab_size": 151936}`, `{"eos_token_id": [151645, 151643]}`, []int32{151643, 151645}},
		{"qwen3", `{"eos_token_id": 151643, "vocab_size": 151936}`, "", []int32{151643, 151645}}, // a base model
		{"gpt-oss", `{"eos_token_id": 200002, "vocab_size": 201088}`, `{"eos_token_id": [200002, 199999, 200012]}`, []int32{199999, 200002, 200012}},
		{"llama3.1", `{"eos_token_id": [128001, 128008, 128009], "vocab_size": 128256}`, `{"eos_token_id": [128001, 128008, 128009]}`, []int32{128001, 128008, 128009}},
	} {
		t.Run(tt.model, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for name, text := range map[string]string{
				"tokenizer_config.json": string(bpetest.Read(t, tt.model, bpe.FileConfig)), "chat_template.jinja": "x",
				"config.json": tt.config, "generation_config.json": tt.generation,
			} {
				if text == "" {
					continue
				}
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			templates, err := LoadTemplates("--tokenizer", dir)
			if err != nil {
				t.Fatal(err)
			}
			m := &prompt.Model{Tokenizer: bpetest.Tokenizer(t, tt.model), Template: templates.For(true)}
			if err := readEngine(dir, m); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(m.StopIDs, tt.stops) {
				t.Errorf("stops %v, want %v", m.StopIDs, tt.stops)
			}
		})
	}
}
