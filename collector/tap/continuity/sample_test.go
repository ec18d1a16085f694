package continuity_test

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/tokenize/bpe"
)

// sample returns a random output: text, thoughts and calls, not always in the tokenizer's tokens.
func (w *world) sample(a *agent) []int32 {
	var text strings.Builder
	calls := w.n(4)
	if w.tame {
		calls = min(calls, 1)
	}
	if w.one(2) && (a.scrub || !w.tame) { // the template removes a thought when the user speaks again
		text.WriteString("<think>\n" + w.text() + []string{"\n</think>\n\n", "</think>", "\n\n</think>\n"}[w.n(3)])
	}
	if calls == 0 && w.tame {
		text.Reset()
	}
	if calls == 0 || w.one(3) {
		text.WriteString(w.text() + []string{"", "\n", " ", "\n\n"}[w.n(4)])
	}
	for i := range calls {
		if i > 0 {
			text.WriteString([]string{"\n", "", "\n\n"}[w.n(3)])
		}
		text.WriteString(w.call())
		if !w.tame && w.one(16) {
			text.WriteString(w.text())
		}
	}
	ids := w.tokens(text.String())
	switch {
	case w.tame:
	case w.one(12):
		return ids // cut at the length limit
	case w.one(20):
		return append(ids, 151643) // <|endoftext|>
	case w.one(20):
		ids = append(ids, imStart)
	}
	return append(ids, imEnd)
}

func (w *world) call() string {
	space := []string{"", " ", "\n", "  "}[w.n(4)]
	name := []string{"add", "mul", "find"}[w.n(3)]
	var members []string
	for i := range w.n(3) {
		members = append(members, fmt.Sprintf("%q:%s%s", string(rune('a'+i)), space, w.value(0)))
	}
	arguments := "{" + strings.Join(members, ","+space) + "}"
	call := `{"name":` + space + `"` + name + `",` + space + `"arguments":` + space + arguments + space + "}"
	if !w.tame {
		switch w.n(24) {
		case 0:
			call = strings.Replace(call, "}", "", 1)
		case 1:
			call = `{"arguments": {}, "name": "add"}`
		case 2:
			call = "add\n<arg_key>a</arg_key>"
		case 3:
			call = `{"name": "add"}`
		case 4:
			call = `{"name": "add", "arguments": {"a": "f(){}{}"}}`
		case 5:
			call = `{"name": "add", "arguments": {"a": 1, "a": 2}}`
		}
	}
	if w.one(2) {
		call = `{"name": "` + name + `", "arguments": {"a": 1}}`
	}
	if w.one(3) {
		return "<tool_call>\n" + call + "\n</tool_call>"
	}
	return "<tool_call>" + []string{"\n", "", " "}[w.n(3)] + call + []string{"\n", "", "\n\n"}[w.n(3)] + "</tool_call>"
}

// value returns a random JSON value, in a form that Python prints differently. If the world is not
// tame, the server changes some values.
func (w *world) value(depth int) string {
	switch kinds := 5; {
	case depth < 2:
		kinds = 7
		fallthrough
	default:
		switch w.n(kinds) {
		case 0:
			return []string{"1", "0", "-7", "12345678901234567890"}[w.n(4)]
		case 1:
			return []string{"1e3", "1.50", "0.1", "-2.5E-3", "1E22", "100e-2"}[w.n(6)]
		case 2:
			return []string{"true", "null", "false"}[w.n(3)]
		case 3:
			return []string{`"\u00e9\t\/"`, `"é"`, `"\ud83d\ude00 \u0041"`, `"a\\b\"c"`}[w.n(4)]
		case 4:
			if !w.tame {
				return []string{"-0", "0.1000000000000000055", "\"e\u0301\"", `"\ud800"`, `"<|im_end|>"`, "1e400"}[w.n(6)]
			}
			return `"x"`
		case 5:
			return "[" + w.value(depth+1) + " ,\n" + w.value(depth+1) + "]"
		}
		return `{ "k":` + w.value(depth+1) + `, "j" : ` + w.value(depth+1) + "}"
	}
}

// text returns a random text. It is short, so that two agents often say the same.
func (w *world) text() string {
	words := []string{"five", "I add.", "the été", "日本語", "x\ny", "2 and 3", "😀"}
	if !w.tame {
		words = append(words, "<|im_end|>", "e\u0301", "<tool_call>", "</think>", "{", "<|im_start|>assistant\n")
	}
	s := words[w.n(len(words))]
	for w.one(3) {
		s += " " + words[w.n(len(words))]
	}
	return s
}

// tokens encodes a text as an engine might have sampled it: special tokens are plain letters, and
// some tokens are split.
func (w *world) tokens(text string) []int32 {
	var ids []int32
	for i, part := range strings.Split(text, "<|im_") { // the text contains no special token
		if i > 0 {
			part = "|im_" + part
			ids = append(ids, w.plain("<")...)
		}
		ids = append(ids, encode(w.tb, w.tok, part)...)
	}
	if !w.one(3) {
		return ids
	}
	var cut []int32
	for _, id := range ids {
		b, err := w.tok.Bytes(id)
		if err != nil {
			w.tb.Fatal(err)
		}
		n := len(b) / 2
		if n == 0 || !w.one(3) || !utf8.Valid(b[:n]) || !utf8.Valid(b[n:]) {
			cut = append(cut, id)
			continue
		}
		cut = slices.Concat(cut, w.plain(string(b[:n])), w.plain(string(b[n:])))
	}
	return cut
}

func (w *world) plain(text string) []int32 {
	ids, err := w.tok.AppendTokensWith(nil, text, bpe.EncodeOptions{Added: bpe.AddedNone})
	if err != nil {
		w.tb.Fatal(err)
	}
	return ids
}
