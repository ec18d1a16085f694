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

func jsonLines[T any](tb testing.TB, name ...string) []T {
	tb.Helper()
	var out []T
	for line := range bytes.Lines(bpetest.Read(tb, name...)) {
		var v T
		if err := json.Unmarshal(line, &v); err != nil {
			tb.Fatal(err)
		}
		out = append(out, v)
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
	var v T
	if err := json.Unmarshal(bpetest.Read(tb, name...), &v); err != nil {
		tb.Fatal(err)
	}
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
				bad := 0
				for i, text := range texts {
					if !checkIDs(t, text, encode(t, tok, text, bpe.EncodeOptions{}), want[i]) {
						if bad++; bad == 5 {
							t.FailNow()
						}
					}
				}
			})
		}
	}
}

// TestReferenceDecode checks the text of random ids, with special tokens decoded and skipped.
func TestReferenceDecode(t *testing.T) {
	t.Parallel()
	for _, name := range withVectors {
		if name == "qwen2.5" {
			continue // as above
		}
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
			for i, v := range vectors {
				if got := decode(t, tok, v.IDs, bpe.DecodeOptions{SkipSpecial: true}); got != v.A {
					t.Fatalf("vector %d: AppendText(%v, skip special) = %q, want %q", i, v.IDs, got, v.A)
				}
				if got := decode(t, tok, v.IDs, bpe.DecodeOptions{}); got != v.B {
					t.Fatalf("vector %d: AppendText(%v) = %q, want %q", i, v.IDs, got, v.B)
				}
			}
		})
	}
}

// TestLlamaCppVectors checks the ids of llama.cpp's test texts.
func TestLlamaCppVectors(t *testing.T) {
	t.Parallel()
	const separator = "\n__ggml_vocab_test__\n"
	for name, file := range map[string]string{"qwen2.5": "qwen2", "qwen3": "qwen2", "llama3.1": "llama-bpe"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tok := bpetest.Tokenizer(t, name)
			texts := strings.Split(strings.TrimSuffix(string(bpetest.Read(t, "vectors", "llama.cpp", file+".inp")), separator), separator)
			answers := strings.Split(strings.TrimSuffix(string(bpetest.Read(t, "vectors", "llama.cpp", file+".out")), "\n"), "\n")
			if len(texts) != len(answers) || len(texts) != 46 {
				t.Fatalf("%d texts, %d answers", len(texts), len(answers))
			}
			for i, text := range texts {
				var want []int32
				list := "[" + strings.Join(strings.Fields(answers[i]), ",") + "]"
				if err := json.Unmarshal([]byte(list), &want); err != nil {
					t.Fatal(err)
				}
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
			t.Parallel()
			tok := bpetest.Tokenizer(t, name)
			if len(sets[set]) < 15 {
				t.Fatalf("%d vectors", len(sets[set]))
			}
			for _, v := range sets[set] {
				got := encode(t, tok, v.Text, bpe.EncodeOptions{PostProcess: true})
				if checkIDs(t, v.Text, got, v.IDs) {
					got := decode(t, tok, v.IDs, bpe.DecodeOptions{})
					if name == "llama3.1" { // as in its configuration
						got = cleanUp(got)
					}
					if got != v.Decoded {
						t.Errorf("AppendText(%v) = %q, want %q", v.IDs, got, v.Decoded)
					}
				}
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
	dir := []string{"vectors", "swift-transformers"}
	t.Run("qwen2.5", func(t *testing.T) {
		t.Parallel()
		tok := bpetest.Tokenizer(t, "qwen2.5")
		want := jsonFile[struct {
			Entries map[string]struct {
				IDs []int32 `json:"input_ids"`
			}
		}](t, append(dir, "multilingual_Qwen2.5-0.5B.json")...)
		inputs := jsonFile[struct {
			Inputs []struct{ ID, Text string }
		}](t, append(dir, "multilingual_inputs.json")...)
		if len(inputs.Inputs) != 30 {
			t.Fatalf("%d texts", len(inputs.Inputs))
		}
		for _, in := range inputs.Inputs {
			checkIDs(t, in.Text, encode(t, tok, in.Text, bpe.EncodeOptions{PostProcess: true}), want.Entries[in.ID].IDs)
		}
	})
	t.Run("llama3.1", func(t *testing.T) {
		t.Parallel()
		tok := bpetest.Tokenizer(t, "llama3.1")
		long := jsonFile[struct {
			Text string
			IDs  []int32 `json:"token_ids"`
		}](t, append(dir, "llama_3.2_encoded.json")...)
		checkIDs(t, long.Text, encode(t, tok, long.Text, bpe.EncodeOptions{PostProcess: true}), long.IDs)

		type vector struct {
			Input   string
			Encoded struct {
				IDs []int32 `json:"input_ids"`
			}
			With    string `json:"decoded_with_special"`
			Without string `json:"decoded_without_special"`
		}
		for _, set := range jsonFile[map[string][]vector](t, append(dir, "llama_3.2_tokenizer_tests.json")...) {
			if len(set) == 0 {
				t.Fatal("no vectors")
			}
			for _, v := range set {
				checkIDs(t, v.Input, encode(t, tok, v.Input, bpe.EncodeOptions{PostProcess: true}), v.Encoded.IDs)
				if got := cleanUp(decode(t, tok, v.Encoded.IDs, bpe.DecodeOptions{})); got != v.With {
					t.Errorf("AppendText(%v) = %q, want %q", v.Encoded.IDs, got, v.With)
				}
				if got := cleanUp(decode(t, tok, v.Encoded.IDs, bpe.DecodeOptions{SkipSpecial: true})); got != v.Without {
					t.Errorf("AppendText(%v, skip special) = %q, want %q", v.Encoded.IDs, got, v.Without)
				}
			}
		}
	})
}

// TestGLMVector checks the ids of a text for GLM-4.5, from nai-tok.
func TestGLMVector(t *testing.T) {
	t.Parallel()
	known := jsonFile[struct {
		Text string
		IDs  []int32
	}](t, "vectors", "glm45_known.json")
	for _, name := range []string{"glm4.5", "glm5"} {
		tok := bpetest.Tokenizer(t, name)
		if tok.Family() != bpe.FamilyGLM {
			t.Errorf("%s: Family() = %s", name, tok.Family())
		}
		if name == "glm4.5" {
			checkIDs(t, known.Text, encode(t, tok, known.Text, bpe.EncodeOptions{}), known.IDs)
		}
	}
}
