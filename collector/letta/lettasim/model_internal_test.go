package lettasim

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/chat"
	"github.com/rollout-rl/rollout/tokenize/tokenizetest"
)

var update = flag.Bool("update", false, "write model/tokenizer.json.gz")

// tokenizerJSON returns the tokenizer of the vocabulary: a byte-level BPE without merges.
func tokenizerJSON(t *testing.T) []byte {
	t.Helper()
	vocab := map[string]int32{}
	for b := range 256 {
		id := byteID(byte(b))
		r := rune(b)
		if id >= 188 { // GPT-2 replaces unprintable bytes
			r = 256 + id - 188
		}
		vocab[string(r)] = id
	}
	used := map[int32]bool{}
	for word, id := range wordIDs {
		vocab["Ġ"+word], used[id] = id, true
	}
	// bpe refuses a vocabulary with too few tokens for its highest id. No text has these.
	for id := int32(256); len(vocab) < 22_000; id++ {
		if !used[id] {
			vocab[fmt.Sprint("unused", id)] = id
		}
	}
	type object = map[string]any
	byteLevel := object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true}
	added := []object{}
	for text, id := range marks {
		vocab[text] = id // otherwise its id would follow from the size of the vocabulary
		added = append(added, object{
			"id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": strings.HasPrefix(text, "<|"),
		})
	}
	slices.SortFunc(added, func(a, b object) int { return strings.Compare(fmt.Sprint(a["id"]), fmt.Sprint(b["id"])) })
	out := must(json.MarshalIndent(object{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": added, "normalizer": nil, "pre_tokenizer": byteLevel,
		"post_processor": nil, "decoder": byteLevel,
		"model": object{
			"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
			"fuse_unk": false, "byte_fallback": false, "ignore_merges": true, "vocab": vocab, "merges": []any{},
		},
	}, "", " "))(t)
	return append(out, '\n')
}

func loadModel(t *testing.T) (*bpe.Tokenizer, *chat.Template) {
	t.Helper()
	want := tokenizerJSON(t)
	if *update {
		var b bytes.Buffer
		z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
		_, err := z.Write(want)
		if err := errors.Join(err, z.Close(), os.WriteFile("model/tokenizer.json.gz", b.Bytes(), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := tokenizetest.Gunzip("model/tokenizer.json.gz"); err != nil || string(got) != string(want) {
		t.Fatalf("model/tokenizer.json.gz is not the tokenizer of the vocabulary (%v): go test ./collector/letta/lettasim -run Model -update", err)
	}
	files := fstest.MapFS{"tokenizer.json": {Data: want}}
	for _, name := range []string{"tokenizer_config.json", "chat_template.jinja"} {
		files[name] = &fstest.MapFile{Data: must(fs.ReadFile(Model(), name))(t)}
	}
	return must(bpe.Load(files, bpe.Options{}))(t), must(chat.Load(files, chat.Options{}))(t).For(true)
}

// TestModelVocabulary compares the tokenizer with the tokens of scripted agents.
func TestModelVocabulary(t *testing.T) {
	tokenizer, _ := loadModel(t)
	for _, text := range []string{
		"", " ", "the", " the", "  the of", "\n the\t of", " theme", " the2 2the", " is, is.", " thé", " It's the", "naïve — 日本語 🎉\u200b", "a<b>c <tool_call> the",
		"<|im_start|>user\nAdd 2 and 3.<|im_end|>\n", " sum<tool_call>\n{\"name\": \"add\"}\n</tool_call><|im_end|>", "<<|im_end|>>", "\x00\x7f\u00a0\u00ad",
	} {
		got := must(tokenizer.AppendTokens(nil, text))(t)
		if want := appendText(nil, text); !slices.Equal(got, want) {
			t.Errorf("%q: tokenizer %v, scripted agents %v", text, got, want)
		}
		if back, err := tokenizer.AppendText(nil, got, bpe.DecodeOptions{}); err != nil || string(back) != text {
			t.Errorf("%q: decodes to %q, %v", text, back, err)
		}
	}
}

// TestModelPrompts renders each prompt of two sends from the messages and tools in its trace.
func TestModelPrompts(t *testing.T) {
	tokenizer, template := loadModel(t)
	_, call := newServer(t, Config{InputIDs: true, Script: Script{Calls: Range{3, 3}, Drift: 0.5}})
	id := member(call("POST", "/v1/agents/", `{"model":"sglang//models/qwen3"}`), "id")
	decode := func(text []byte, into any) {
		t.Helper()
		if err := json.Unmarshal(text, into); err != nil {
			t.Fatalf("%v in %.300s", err, text)
		}
	}
	n := 0
	for _, text := range []string{"Add 2 and 3.", "Is it — 6 times 7?"} {
		var sent struct {
			Messages []struct {
				RunID string `json:"run_id"`
			}
		}
		decode(call("POST", "/v1/agents/"+id+"/messages", fmt.Sprintf(`{"input":%q}`, text)), &sent)
		var steps []struct{ ID string }
		decode(call("GET", "/v1/runs/"+sent.Messages[0].RunID+"/steps", ""), &steps)
		for _, step := range steps {
			var trace struct {
				Request struct {
					Messages, Tools json.RawMessage
					InputIDs        []int32 `json:"input_ids"`
				} `json:"request_json"`
			}
			decode(call("GET", "/v1/steps/"+step.ID+"/trace", ""), &trace)
			prompt := must(template.Render(nil, chat.Input{
				Messages: must(chat.FromJSON(trace.Request.Messages))(t), Tools: must(chat.FromJSON(trace.Request.Tools))(t),
				AddGenerationPrompt: true, Now: time.Now(),
			}))(t)
			if ids := appendText(nil, string(prompt)); !slices.Equal(ids, trace.Request.InputIDs) {
				was, _ := tokenizer.AppendText(nil, trace.Request.InputIDs, bpe.DecodeOptions{})
				t.Errorf("call %d: rendered %q, the model had %q", n, prompt, was)
			}
			n++
		}
	}
	if n != 6 {
		t.Errorf("compared %d prompts, want 6", n)
	}
}
