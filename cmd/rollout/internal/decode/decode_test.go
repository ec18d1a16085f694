package decode

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
	"github.com/rollout-rl/rollout/tokenize/chat"
	"github.com/rollout-rl/rollout/tokenize/tokenizetest"
)

type span struct {
	role tokenize.Role
	text string
}

func rowOf(tb testing.TB, tok *bpe.Tokenizer, spans ...span) *sink.StoredRow {
	tb.Helper()
	r := &sink.StoredRow{TurnOffsets: []int32{0}}
	for _, s := range spans {
		ids, err := tok.AppendTokens(r.InputIDs, s.text)
		if err != nil {
			tb.Fatal(err)
		}
		r.InputIDs = ids
		r.TurnOffsets, r.TurnRoles = append(r.TurnOffsets, int32(len(ids))), append(r.TurnRoles, int8(s.role))
	}
	return r
}

func decoderOf(tb testing.TB, name string) (*bpe.Tokenizer, *Decoder) {
	tb.Helper()
	tok := bpetest.Tokenizer(tb, name)
	d := New(tok)
	if !d.Known() {
		tb.Fatal("the form is not known")
	}
	return tok, d
}

// The messages of a prompt are those that the chat template got.
func TestTemplates(t *testing.T) {
	t.Parallel()
	b, err := tokenizetest.Gunzip(filepath.Join("..", "..", "..", "..", "testdata", "chat-templates", "templates.json.gz"))
	var sources map[string]string
	if err == nil {
		err = json.Unmarshal(b, &sources)
	}
	if err != nil {
		t.Fatal(err)
	}
	const (
		system = "Be brief.\n\nUse tools. é"
		add    = `{"a": 2, "b": 3}`
	)
	all := []Message{
		{Role: System, Content: system, Span: -1},
		{Role: User, Content: "Add 2 and 3,\nplease.", Span: -1},
		{Role: Assistant, Content: "I add.", Calls: []Call{{ID: "call_1", Name: "add", Arguments: add}}, Span: -1},
		{Role: Tool, Content: "5", CallID: "call_1", Span: -1},
		{Role: Assistant, Content: "It is 5.", Span: -1},
		{Role: User, Content: "Thanks.", Span: -1},
		{Role: Assistant, Content: "Bye.", Span: 1},
	}
	for _, tt := range []struct {
		tokenizer, template string
		tools, system       bool // what the form has
		end                 string
	}{
		{"qwen2.5", "cfg_qwen2.5.jinja", true, true, "<|im_end|>"},
		{"qwen3", "cfg_qwen3.jinja", true, true, "<|im_end|>"},
		{"qwen3.5", "Qwen3.5-4B.jinja", false, true, "<|im_end|>"},
		{"llama3.1", "meta-llama-Llama-3.1-8B-Instruct.jinja", false, false, "<|eot_id|>"},
		{"glm4.5", "GLM-4.6.jinja", false, true, "<|user|>"},
		{"gemma3", "google-gemma-2-2b-it.jinja", false, false, "<end_of_turn>"},
	} {
		t.Run(tt.tokenizer, func(t *testing.T) {
			t.Parallel()
			tok, d := decoderOf(t, tt.tokenizer)
			var want []Message
			var list []map[string]any
			for i, m := range all {
				if m.Role == System && !tt.system || m.Role == Tool && !tt.tools || m.Calls != nil && !tt.tools || !tt.tools && i == 4 {
					continue
				}
				want = append(want, m)
				if m.Span >= 0 {
					continue
				}
				in := map[string]any{"role": m.Role, "content": m.Content}
				for _, c := range m.Calls {
					in["tool_calls"] = []any{map[string]any{"id": c.ID, "type": "function", "function": map[string]any{"name": c.Name, "arguments": json.RawMessage(c.Arguments)}}}
				}
				list = append(list, in)
			}
			if !tt.tools { // two messages of the user without an answer are not allowed everywhere
				list = append(list[:len(list)-1], map[string]any{"role": "assistant", "content": "It is 5."}, list[len(list)-1])
				want = append(want[:len(want)-2], all[4], all[5], all[6])
			}
			body, err := json.Marshal(map[string]any{"messages": list, "add_generation_prompt": true})
			if err != nil {
				t.Fatal(err)
			}
			v, err := chat.FromJSON(body)
			if err != nil {
				t.Fatal(err)
			}
			tpl, err := chat.Parse(tt.template, sources[tt.template], chat.Options{})
			if err != nil {
				t.Fatal(err)
			}
			text, err := tpl.Render(nil, chat.Input{Extra: v.Map(), Now: time.Date(2026, 7, 4, 12, 30, 0, 0, time.UTC)})
			if err != nil {
				t.Fatal(err)
			}
			answer := "Bye." + tt.end
			if strings.HasSuffix(string(text), "<think>\n") {
				answer = "</think>" + answer
			}
			got := d.Messages(rowOf(t, tok, span{tokenize.RolePrompt, string(text)}, span{tokenize.RoleAssistant, answer}))
			if !tt.system && got[0].Role == System { // the template's own
				got = got[1:]
			}
			for i := range got { // empty reasoning that a template adds
				got[i].Reasoning = ""
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("of %s\ngot  %+v\nwant %+v", text, got, want)
			}
		})
	}
}

// Spans become messages: reasoning, calls, results, answers that are cut, marks that the policy wrote itself.
func TestSpans(t *testing.T) {
	t.Parallel()
	tok, d := decoderOf(t, "qwen3")
	const (
		begin  = "<|im_start|>user\nAdd.<|im_end|>\n<|im_start|>assistant\n"
		answer = "\n<|im_start|>assistant\n"
		call   = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>"
	)
	user := Message{Role: User, Content: "Add.", Span: -1}
	padded := rowOf(t, tok, span{tokenize.RolePrompt, begin}, span{tokenize.RoleAssistant, "Yes<|im_end|>"})
	padded.InputIDs = append(padded.InputIDs, 1<<20)
	padded.TurnOffsets[2]++
	for _, tt := range []struct {
		name string
		row  *sink.StoredRow
		want []Message
	}{
		{"reasoning and calls", rowOf(t, tok, span{tokenize.RolePrompt, begin},
			span{tokenize.RoleAssistant, "<think>\nHm.\n</think>\n\nI add." + call + "\n" + call + "<|im_end|>"},
			span{tokenize.RoleTool, "\n<|im_start|>user\n<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response><|im_end|>" + answer},
			span{tokenize.RoleAssistant, "Done.<|im_end|>"}), []Message{
			user,
			{Role: Assistant, Reasoning: "Hm.", Content: "I add.", Calls: []Call{{ID: "call_1", Name: "add", Arguments: `{"a": 1}`}, {ID: "call_2", Name: "add", Arguments: `{"a": 1}`}}, Span: 1},
			{Role: Tool, Content: "1", CallID: "call_1", Span: -1},
			{Role: Tool, Content: "2", CallID: "call_2", Span: -1},
			{Role: Assistant, Content: "Done.", Span: 3},
		}},
		{"a result too few", rowOf(t, tok, span{tokenize.RolePrompt, begin}, span{tokenize.RoleAssistant, call + call + "<|im_end|>"},
			span{tokenize.RoleTool, "\n<|im_start|>user\n<tool_response>\n1\n</tool_response><|im_end|>" + answer}, span{tokenize.RoleAssistant, "Done."}), []Message{
			user,
			{Role: Assistant, Calls: []Call{{ID: "call_1", Name: "add", Arguments: `{"a": 1}`}, {ID: "call_2", Name: "add", Arguments: `{"a": 1}`}}, Span: 1},
			{Role: Tool, Content: "1", Span: -1},
			{Role: Assistant, Content: "Done.", Span: 3},
		}},
		{
			"thinking begun by the template, and cut", rowOf(t, tok, span{tokenize.RolePrompt, begin + "<think>\n"}, span{tokenize.RoleAssistant, "Well"}),
			[]Message{user, {Role: Assistant, Reasoning: "Well", Span: 1}},
		},
		{
			"a call that is no JSON", rowOf(t, tok, span{tokenize.RolePrompt, begin}, span{tokenize.RoleAssistant, "<tool_call>{\"name\": \"add\",}</tool_call><|im_end|>"}),
			[]Message{user, {Role: Assistant, Content: `<tool_call>{"name": "add",}</tool_call>`, Span: 1}},
		},
		{
			"a role that the policy wrote", rowOf(t, tok, span{tokenize.RolePrompt, begin}, span{tokenize.RoleAssistant, "Yes<|im_end|>\n<|im_start|>user\nNo<|im_end|>"}, span{tokenize.RoleUser, "\n<|im_start|>user\nWell?<|im_end|>" + answer}, span{tokenize.RoleAssistant, "Yes"}),
			[]Message{user, {Role: Assistant, Content: "Yes\nuser\nNo", Span: 1}, {Role: User, Content: "Well?", Span: -1}, {Role: Assistant, Content: "Yes", Span: 3}},
		},
		{
			"an empty output", rowOf(t, tok, span{tokenize.RolePrompt, begin}, span{tokenize.RoleAssistant, ""}, span{tokenize.RoleUser, "<|im_end|>" + answer}, span{tokenize.RoleAssistant, "Yes"}),
			[]Message{user, {Role: Assistant, Span: 1}, {Role: Assistant, Content: "Yes", Span: 3}},
		},
		{"an id without a token", padded, []Message{user, {Role: Assistant, Content: "Yes", Span: 1}}},
		{
			"two outputs without a mark between", rowOf(t, tok, span{tokenize.RolePrompt, begin}, span{tokenize.RoleAssistant, "One"}, span{tokenize.RoleAssistant, "Two"}),
			[]Message{user, {Role: Assistant, Content: "One", Span: 1}, {Role: Assistant, Content: "Two", Span: 2}},
		},
		{"no mark at all", rowOf(t, tok, span{tokenize.RolePrompt, "Add."}, span{tokenize.RoleAssistant, "Yes"}), []Message{{Role: Unknown, Content: "Add.", Span: -1}, {Role: Assistant, Content: "Yes", Span: 1}}},
	} {
		if got := d.Messages(tt.row); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", tt.name, got, tt.want)
		}
	}
}

// GLM stops at the mark that begins the next message. If no message follows, there is none.
func TestSampledMark(t *testing.T) {
	t.Parallel()
	tok, d := decoderOf(t, "glm4.5")
	spans := []span{{tokenize.RolePrompt, "[gMASK]<sop><|user|>\nHi.<|assistant|>\n"}, {tokenize.RoleAssistant, "Yo.<|user|>"}}
	want := []Message{{Role: User, Content: "Hi.", Span: -1}, {Role: Assistant, Content: "Yo.", Span: 1}}
	if got := d.Messages(rowOf(t, tok, spans...)); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	spans = append(spans, span{tokenize.RoleUser, "\nBye.<|assistant|>\n"}, span{tokenize.RoleAssistant, "Bye."})
	want = append(want, Message{Role: User, Content: "Bye.", Span: -1}, Message{Role: Assistant, Content: "Bye.", Span: 3})
	if got := d.Messages(rowOf(t, tok, spans...)); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// Stored messages of both APIs become the same messages. The Python package reads testdata/stored.json too. The
// messages of an unknown form are null.
func TestStored(t *testing.T) {
	t.Parallel()
	lines, err := os.ReadFile(filepath.Join("testdata", "stored.json"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range bytes.Lines(lines) {
		var c struct{ Stored, Messages json.RawMessage }
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatal(err)
		}
		got := []byte("null")
		if all, err := Stored(string(c.Stored)); err == nil {
			got = AppendJSON(nil, all)
		}
		if a, b := canonical(t, got), canonical(t, c.Messages); a != b {
			t.Errorf("%s:\ngot  %s\nwant %s", c.Stored, a, b)
		}
		n++
	}
	if n < 20 {
		t.Errorf("%d lines", n)
	}
	if _, err := Stored(""); err == nil {
		t.Error("an empty text is accepted")
	}
}

func canonical(t *testing.T, raw []byte) string {
	t.Helper()
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// FuzzMessages checks that every assistant span becomes one message, whatever the tokens are.
func FuzzMessages(f *testing.F) {
	f.Add("<|im_start|>user\nHi<|im_end|>", "<think>", []byte{0, 1, 2, 1})
	f.Add("<tool_call>{}</tool_call><|im_start|>", "<|im_start|>", []byte{1, 1, 3})
	f.Fuzz(func(t *testing.T, a, b string, roles []byte) {
		tok, d := decoderOf(t, "qwen3")
		var spans []span
		for i, r := range roles[:min(len(roles), 20)] {
			spans = append(spans, span{tokenize.Role(r % 4), []string{a, b}[i%2]})
		}
		row := rowOf(t, tok, spans...)
		var want, got []int
		for k, role := range row.TurnRoles {
			if tokenize.Role(role) == tokenize.RoleAssistant {
				want = append(want, k)
			}
		}
		for _, m := range d.Messages(row) {
			if m.Span >= 0 {
				got = append(got, m.Span)
			}
			if strings.ContainsRune(m.Role, ' ') || m.Role == "" {
				t.Errorf("role %q", m.Role)
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("spans %v, want %v", got, want)
		}
	})
}
