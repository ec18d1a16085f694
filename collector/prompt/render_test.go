package prompt_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// TestSharedPrefix encodes texts that each differ a little from the previous one. Shared parts are
// encoded once, and the ids equal the ids of the whole text.
func TestSharedPrefix(t *testing.T) {
	t.Parallel()
	model := qwen3(t)
	tmpl := parseTemplate(t, "text", "{{ messages[0].content }}", chat.Options{})
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	pieces := []string{"<|im_start|>", "<|im_end|>\n", "<think>", "<think", "</think>", " ", "word", " <", "<|", "\n\n", "é", "e\u0301", "123", "漢"}
	encodeShared := prompt.Encoder(&prompt.Model{Template: tmpl, Tokenizer: model.Tokenizer})
	var given, wanted [][]int32
	check := func(text string) {
		got := must(encodeShared(text))(t)
		want := encode(t, model, text)
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: %q is %v, want %v", seed, text, got, want)
		}
		given, wanted = append(given, got), append(wanted, want)
	}
	for _, text := range []string{"x <think>", "x <think", "x <think>y", ""} {
		check(text) // the last three shared bytes can belong to another token
	}
	text := ""
	for range 2000 {
		text = strings.ToValidUTF8(text[:len(text)-r.IntN(len(text)/4+1)], "")
		for range 1 + r.IntN(4) {
			text += pieces[r.IntN(len(pieces))]
		}
		if len(text) > 400 {
			text = ""
		}
		check(text)
	}
	for i := range given {
		if !slices.Equal(given[i], wanted[i]) {
			t.Fatalf("seed %d: prompt %d was %v and became %v", seed, i, wanted[i], given[i])
		}
	}
}
