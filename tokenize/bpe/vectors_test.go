package bpe_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
)

const reference = "hf-tokenizers-0.23.2"

func parseFile(tb testing.TB, file []byte) *bpe.Tokenizer {
	tb.Helper()
	tok, err := bpe.Parse(file, bpe.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return tok
}

func encode(tb testing.TB, tok *bpe.Tokenizer, text string, opts bpe.EncodeOptions) []int32 {
	tb.Helper()
	ids, err := tok.AppendTokensWith(nil, text, opts)
	if err != nil {
		tb.Fatal(err)
	}
	return ids
}

func decode(tb testing.TB, tok *bpe.Tokenizer, ids []int32, opts bpe.DecodeOptions) string {
	tb.Helper()
	text, err := tok.AppendText(nil, ids, opts)
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

func unmarshal[T any](tb testing.TB, raw []byte) (v T) {
	tb.Helper()
	if err := json.Unmarshal(raw, &v); err != nil {
		tb.Fatal(err)
	}
	return v
}

func jsonLines[T any](tb testing.TB, name ...string) (out []T) {
	tb.Helper()
	for line := range bytes.Lines(bpetest.Read(tb, name...)) {
		out = append(out, unmarshal[T](tb, line))
	}
	return out
}

// jsonFiles caches the results of jsonFile. No test changes them.
var jsonFiles sync.Map

func jsonFile[T any](tb testing.TB, name ...string) T {
	tb.Helper()
	key := filepath.Join(name...)
	if known, ok := jsonFiles.Load(key); ok {
		if v, ok := known.(T); ok {
			return v
		}
	}
	v := unmarshal[T](tb, bpetest.Read(tb, name...))
	jsonFiles.Store(key, v)
	return v
}

// checkIDs reports the first difference and returns whether got equals want.
func checkIDs(tb testing.TB, text string, got, want []int32) bool {
	tb.Helper()
	if slices.Equal(got, want) {
		return true
	}
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	tb.Errorf("AppendTokens(%.300q): differs at token %d of %d (want %d tokens): %v, want %v",
		text, at, len(got), len(want), got[at:min(at+8, len(got))], want[at:min(at+8, len(want))])
	return false
}

// withVectors are the tokenizers with stored vectors. The others are compared with the reference
// engine itself (TestPeerEncode).
var withVectors = []string{"qwen2.5", "qwen3", "llama3.1", "deepseek-v3", "gpt-oss", "mistral-nemo-tekken"}

// TestReferenceVectors checks the reference engine's ids for hostile, real and edge-case texts.
func TestReferenceVectors(t *testing.T) {
	t.Parallel()
	for _, name := range withVectors {
		for _, set := range []struct{ texts, ids string }{
			{"texts.json", name + ".ids.jsonl"},
			{"unicode_edge.texts.json", "unicode_edge." + name + ".ids.jsonl"},
		} {
			if name == "qwen2.5" && strings.HasPrefix(set.ids, "unicode_edge") {
				continue // same pipeline as qwen3; the reference has no file for it
			}
			t.Run(set.ids, func(t *testing.T) {
				t.Parallel()
				tok := bpetest.Tokenizer(t, name)
				texts := jsonFile[[]string](t, "vectors", reference, set.texts)
				want := jsonLines[[]int32](t, "vectors", reference, set.ids)
				if len(texts) != len(want) || len(texts) < 1000 {
					t.Fatalf("%d texts, %d answers", len(texts), len(want))
				}
				for i, text := range texts {
					if !checkIDs(t, text, encode(t, tok, text, bpe.EncodeOptions{}), want[i]) {
						return
					}
				}
			})
		}
	}
}

// TestReferenceDecode checks the text of random ids, with special tokens decoded and skipped.
func TestReferenceDecode(t *testing.T) {
	t.Parallel()
	for _, name := range withVectors[1:] { // qwen2.5 as above
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tok := bpetest.Tokenizer(t, name)
			type vector struct {
				IDs  []int32
				A, B string
			}
			vectors := jsonLines[vector](t, "vectors", reference, name+".decode.jsonl")
			if len(vectors) < 1500 {
				t.Fatalf("%d vectors", len(vectors))
			}
			for _, v := range vectors {
				checkText(t, tok, v.IDs, bpe.DecodeOptions{SkipSpecial: true}, v.A, nil)
				checkText(t, tok, v.IDs, bpe.DecodeOptions{}, v.B, nil)
				if t.Failed() {
					return
				}
			}
		})
	}
}

// checkText checks the text of ids, after clean unless it is nil.
func checkText(tb testing.TB, tok *bpe.Tokenizer, ids []int32, opts bpe.DecodeOptions, want string, clean func(string) string) {
	tb.Helper()
	got := decode(tb, tok, ids, opts)
	if clean != nil {
		got = clean(got)
	}
	if got != want {
		tb.Errorf("AppendText(%v, %+v) = %q, want %q", ids, opts, got, want)
	}
}

// TestLlamaCppVectors checks the ids of llama.cpp's test texts.
func TestLlamaCppVectors(t *testing.T) {
	t.Parallel()
	const separator = "\n__ggml_vocab_test__\n"
	for name, file := range map[string]string{"qwen2.5": "qwen2", "qwen3": "qwen2", "llama3.1": "llama-bpe"} {
		t.Run(name, func(t *testing.T) {
			tok := bpetest.Tokenizer(t, name)
			read := func(kind, end string) []string {
				return strings.Split(strings.TrimSuffix(string(bpetest.Read(t, "vectors", "llama.cpp", file+kind)), end), end)
			}
			texts, answers := read(".inp", separator), read(".out", "\n")
			if len(texts) != len(answers) || len(texts) != 46 {
				t.Fatalf("%d texts, %d answers", len(texts), len(answers))
			}
			for i, text := range texts {
				want := unmarshal[[]int32](t, []byte("["+strings.Join(strings.Fields(answers[i]), ",")+"]"))
				checkIDs(t, text, encode(t, tok, text, bpe.EncodeOptions{}), want)
			}
		})
	}
}

// TestTransformersJSVectors checks texts, ids and decoded texts of transformers.js.
func TestTransformersJSVectors(t *testing.T) {
	t.Parallel()
	type vector struct {
		Text    string
		IDs     []int32
		Decoded string
	}
	sets := jsonFile[map[string]map[string]vector](t, "vectors", "transformers.js.json")
	for name, set := range map[string]string{
		"qwen2.5": "Xenova/Qwen1.5-0.5B-Chat", "qwen3": "Xenova/Qwen1.5-0.5B-Chat",
		"llama3.1": "Xenova/llama3-tokenizer-new", "gpt-oss": "Xenova/gpt-4o",
	} {
		t.Run(name, func(t *testing.T) {
			tok := bpetest.Tokenizer(t, name)
			if len(sets[set]) < 15 {
				t.Fatalf("%d vectors", len(sets[set]))
			}
			clean := map[string]func(string) string{"llama3.1": cleanUp}[name] // as in its configuration
			for _, v := range sets[set] {
				checkIDs(t, v.Text, encode(t, tok, v.Text, bpe.EncodeOptions{PostProcess: true}), v.IDs)
				checkText(t, tok, v.IDs, bpe.DecodeOptions{}, v.Decoded, clean)
			}
		})
	}
}

// cleanUp removes the space before punctuation and English contractions, as Python's transformers
// does if clean_up_tokenization_spaces is set.
func cleanUp(s string) string {
	for _, from := range []string{" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're"} {
		s = strings.ReplaceAll(s, from, strings.TrimSpace(from))
	}
	return s
}

// TestSwiftVectors checks the ids of Python's transformers for texts of swift-transformers.
func TestSwiftVectors(t *testing.T) {
	t.Parallel()
	type encoded struct {
		IDs []int32 `json:"input_ids"`
	}
	dir := []string{"vectors", "swift-transformers"}
	qwen := bpetest.Tokenizer(t, "qwen2.5")
	want := jsonFile[struct{ Entries map[string]encoded }](t, append(dir, "multilingual_Qwen2.5-0.5B.json")...)
	inputs := jsonFile[struct {
		Inputs []struct{ ID, Text string }
	}](t, append(dir, "multilingual_inputs.json")...)
	if len(inputs.Inputs) != 30 {
		t.Fatalf("%d texts", len(inputs.Inputs))
	}
	post := bpe.EncodeOptions{PostProcess: true}
	for _, in := range inputs.Inputs {
		checkIDs(t, in.Text, encode(t, qwen, in.Text, post), want.Entries[in.ID].IDs)
	}
	llama := bpetest.Tokenizer(t, "llama3.1") // can be missing
	long := jsonFile[struct {
		Text string
		IDs  []int32 `json:"token_ids"`
	}](t, append(dir, "llama_3.2_encoded.json")...)
	checkIDs(t, long.Text, encode(t, llama, long.Text, post), long.IDs)

	type vector struct {
		Input   string
		Encoded encoded
		With    string `json:"decoded_with_special"`
		Without string `json:"decoded_without_special"`
	}
	for _, set := range jsonFile[map[string][]vector](t, append(dir, "llama_3.2_tokenizer_tests.json")...) {
		if len(set) == 0 {
			t.Fatal("no vectors")
		}
		for _, v := range set {
			checkIDs(t, v.Input, encode(t, llama, v.Input, post), v.Encoded.IDs)
			checkText(t, llama, v.Encoded.IDs, bpe.DecodeOptions{}, v.With, cleanUp)
			checkText(t, llama, v.Encoded.IDs, bpe.DecodeOptions{SkipSpecial: true}, v.Without, cleanUp)
		}
	}
}

// TestGLMVector checks the ids of a text for GLM-4.5, from nai-tok.
func TestGLMVector(t *testing.T) {
	t.Parallel()
	known := jsonFile[struct {
		Text string
		IDs  []int32
	}](t, "vectors", "glm45_known.json")
	tok := bpetest.Tokenizer(t, "glm4.5")
	checkIDs(t, known.Text, encode(t, tok, known.Text, bpe.EncodeOptions{}), known.IDs)
	if glm5 := bpetest.Tokenizer(t, "glm5"); tok.Family() != bpe.FamilyGLM || glm5.Family() != bpe.FamilyGLM {
		t.Errorf("Family() = %s, of glm5 %s", tok.Family(), glm5.Family())
	}
}
