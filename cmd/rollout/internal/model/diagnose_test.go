package model

import (
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/tokenize"
)

// Diagnose names the part that differs, and does not guess if it cannot know.
func TestDiagnose(t *testing.T) {
	t.Parallel()
	tok, err := LoadTokenizer("--tokenizer", "../../../../testdata/tokenizers/qwen3", false, nil)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(text string) []int32 {
		ids, err := tok.AppendTokens(nil, text)
		if err != nil {
			t.Fatal(err)
		}
		return ids
	}
	rebuilt := func(text string) prompt.Rebuilt { return prompt.Rebuilt{Text: text, IDs: encode(text)} }
	const shown, other = "<|im_start|>user\nAdd 2 and 3.<|im_end|>\n", "<|im_start|>user\nAdd 2 and 4 now.<|im_end|>\n"
	// The same text in other tokens: one per byte of "user".
	apart := slices.Concat(encode("<|im_start|>"), encode("u"), encode("s"), encode("e"), encode("r"), encode("\nAdd 2 and 3.<|im_end|>\n"))

	for _, tt := range []struct {
		name    string
		change  func(x *prompt.Examined)
		culprit string
		says    string
	}{
		{"nothing", func(*prompt.Examined) {}, "", ""},
		{"ids equal", func(x *prompt.Examined) { x.PromptIDs = encode(shown) }, "", ""},
		{"no stored messages, trace agrees", func(x *prompt.Examined) { x.Stored = prompt.Rebuilt{Err: prompt.ErrNotRebuilt} }, "", ""},
		{"id outside the vocabulary", func(x *prompt.Examined) { x.Counted, x.OutputIDs = 1, []int32{5, 1 << 20} }, "tokenizer", "sampled token 1 is id 1048576"},
		{"sampled text", func(x *prompt.Examined) { x.Counted, x.Response = 1, "Nine." }, "tokenizer", `engine  "▸Nine."`},
		{"other messages, trace agrees", func(x *prompt.Examined) { x.Stored = rebuilt(other) }, "server", "its count agrees"},
		{"other messages, trace does not agree", func(x *prompt.Examined) { x.Stored, x.Counted = rebuilt(other), 1 }, "server", "its count differs too: "},
		{"count", func(x *prompt.Examined) { x.Counted++ }, "template or tokenizer", "(-1)"},
		{"cannot be rendered", func(x *prompt.Examined) {
			x.Stored, x.Trace = prompt.Rebuilt{Err: tokenize.ErrSchema}, prompt.Rebuilt{Err: prompt.ErrNotRebuilt}
		}, "template", "cannot be rebuilt"},
		{"same text, other ids", func(x *prompt.Examined) { x.PromptIDs = apart }, "tokenizer", "the same text has different ids"},
		{"ids of the trace's messages", func(x *prompt.Examined) { x.PromptIDs, x.Stored = encode(shown), rebuilt(other) }, "server", "first difference at token 8"},
		{"ids of another template", func(x *prompt.Examined) { x.PromptIDs = encode(other) }, "template", "server [19 "},
		{"ids end early", func(x *prompt.Examined) { x.PromptIDs = encode(shown)[:4] }, "template", "server ends here"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			x := prompt.Examined{
				Call:    tokenize.Call{OutputIDs: encode("Five.<|im_end|>")},
				Counted: int64(len(encode(shown))), Stored: rebuilt(shown), Trace: rebuilt(shown), Response: "Five.",
			}
			tt.change(&x)
			v := Diagnose(&x, tok)
			if v.Culprit != tt.culprit || !strings.Contains(strings.Join(v.Detail, "\n"), tt.says) {
				t.Errorf("%q differs, want %q with %q:\n%s", v.Culprit, tt.culprit, tt.says, strings.Join(v.Detail, "\n"))
			}
		})
	}
}

func TestSameDifference(t *testing.T) {
	t.Parallel()
	call := func(ours int, counted int64) prompt.Examined {
		return prompt.Examined{Counted: counted, Stored: prompt.Rebuilt{IDs: make([]int32, ours)}}
	}
	for _, tt := range []struct {
		name  string
		calls []prompt.Examined
		want  int64
	}{
		{"one call", []prompt.Examined{call(5, 4)}, 0},
		{"the same", []prompt.Examined{call(5, 4), call(9, 8)}, 1},
		{"none", []prompt.Examined{call(5, 5), call(9, 9)}, 0},
		{"growing", []prompt.Examined{call(5, 4), call(9, 7)}, 0},
		{"uncounted", []prompt.Examined{call(5, 4), call(0, -1)}, 0},
	} {
		if got := SameDifference(tt.calls); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}
