package decode

import (
	"reflect"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
)

func idsOf(tb testing.TB, tok *bpe.Tokenizer, text string) []int32 {
	tb.Helper()
	ids, err := tok.AppendTokens(nil, text)
	if err != nil {
		tb.Fatal(err)
	}
	return ids
}

// TestOutput checks the message that a client gets for an output.
func TestOutput(t *testing.T) {
	t.Parallel()
	strings := func(tool, parameter string) bool { return tool == "write" && parameter == "text" }
	for _, c := range []struct {
		name, tokenizer, prompt, text, stop string
		plain                               bool // the output cannot call tools
		want                                Message
	}{
		{name: "white space stays", text: " \n Hello. \n", want: Message{Content: " \n Hello. \n"}},
		{name: "stop token", text: "Hello.<|im_end|>", want: Message{Content: "Hello."}},
		{name: "stop string", text: "Go: on. Go: now", stop: "Go:", want: Message{Content: "Go: on. "}},
		{name: "reasoning", text: "<think>\nHm.\n</think>\n\nHello. ", want: Message{Reasoning: "Hm.", Content: "Hello."}},
		{name: "reasoning begun in the prompt", prompt: "<|im_start|>assistant\n<think>\n", text: "Hm.\n</think>\n\nHello.", want: Message{Reasoning: "Hm.", Content: "Hello."}},
		{name: "reasoning cut off", prompt: "<|im_start|>assistant\n<think>\n", text: "Hm, let me", want: Message{Reasoning: "Hm, let me"}},
		{name: "no reasoning", prompt: "<|im_start|>assistant\n<think>\n\n</think>\n\n", text: " Hello.", want: Message{Content: " Hello."}},
		{name: "call", text: "I do.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":1.0}}\n</tool_call>", want: Message{Content: "I do.", Calls: []Call{{Name: "f", Arguments: `{"a":1.0}`}}}},
		{
			name: "call without tools", text: "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>", plain: true,
			want: Message{Content: "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>"},
		},
		{name: "malformed call", text: "<tool_call>\n{\"name\": \"f\", \n</tool_call> ", want: Message{Content: "<tool_call>\n{\"name\": \"f\", \n</tool_call> "}},
		{
			name: "arguments as text",
			text: "<tool_call>\n<function=write>\n<parameter=text>\n{\"a\": 1}\n\n</parameter>\n<parameter=n>\n42\n</parameter>\n</function>\n</tool_call>",
			want: Message{Calls: []Call{{Name: "write", Arguments: `{"text": "{\"a\": 1}\n", "n": 42}`}}},
		},
		{
			name: "ids of Kimi", text: "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:3<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
			want: Message{Calls: []Call{{ID: "functions.f:3", Name: "f", Arguments: "{}"}}},
		},
		{
			name: "ids of Mistral", tokenizer: "mistral-nemo-tekken", text: "[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{\"a\": 1}</s>",
			want: Message{Calls: []Call{{ID: "abcdefghi", Name: "f", Arguments: `{"a": 1}`}}},
		},
		{
			name: "gpt-oss", tokenizer: "gpt-oss", text: "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": 1}<|call|>",
			want: Message{Reasoning: "Hm.", Calls: []Call{{Name: "f", Arguments: `{"a": 1}`}}},
		},
		{
			name: "gpt-oss without tools", tokenizer: "gpt-oss", plain: true, text: "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": 1}<|call|>",
			want: Message{Reasoning: "Hm.", Content: `{"a": 1}`},
		},
		{name: "gpt-oss, only text", tokenizer: "gpt-oss", text: "<|channel|>final<|message|>Hello.<|return|>", want: Message{Content: "Hello."}},
	} {
		if c.tokenizer == "" {
			c.tokenizer = "qwen3"
		}
		tok := bpetest.Tokenizer(t, c.tokenizer)
		got := New(tok).Output(Output{Prompt: idsOf(t, tok, c.prompt), IDs: idsOf(t, tok, c.text), Stop: c.stop, Tools: !c.plain, IsText: strings})
		for i := range got.Calls {
			got.Calls[i].texts = nil
		}
		if c.want.Role = Assistant; !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestOutputOfModel checks that the marks of other models are content.
func TestOutputOfModel(t *testing.T) {
	t.Parallel()
	const call = "In Llama you write <function=bash><parameter=command>ls</parameter></function>."
	for _, c := range []struct {
		tokenizer, source, text string
		want                    Message
	}{
		{"qwen3", "<tool_call> </think>", call, Message{Content: call}},
		{"qwen3", "<tool_call> <function=", call, Message{Content: "In Llama you write .", Calls: []Call{{Name: "bash", Arguments: `{"command": "ls"}`}}}},
		{"qwen3", "", "End it with [/THINK] then go.", Message{Content: "End it with [/THINK] then go."}},
		{"qwen3", "", "<think>Hm.</think>Hi<tool_call>{\"name\":\"f\"}</tool_call>", Message{Reasoning: "Hm.", Content: "Hi", Calls: []Call{{Name: "f", Arguments: "{}"}}}},
		{"llama3.1", "<think></think>", "<think>Hm.</think>Hi", Message{Reasoning: "Hm.", Content: "Hi"}},
		{"llama3.1", "", "<think>Hm.</think>Hi", Message{Content: "<think>Hm.</think>Hi"}},
		{"llama3.1", "<|python_tag|>", `<|python_tag|>{"name": "f", "parameters": {}}`, Message{Calls: []Call{{Name: "f", Arguments: "{}"}}}},
		{"llama3.1", "", `[TOOL_CALLS][{"name": "f", "arguments": {}}]`, Message{Content: `[TOOL_CALLS][{"name": "f", "arguments": {}}]`}},
	} {
		tok := bpetest.Tokenizer(t, c.tokenizer)
		got := NewFor(tok, c.source).Output(Output{IDs: idsOf(t, tok, c.text), Tools: true})
		for i := range got.Calls {
			got.Calls[i].texts = nil
		}
		if c.want.Role = Assistant; !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s with %q: %q became %+v, want %+v", c.tokenizer, c.source, c.text, got, c.want)
		}
	}
}

// FuzzOutput checks that no text is lost: text that is neither reasoning nor a call is content.
func FuzzOutput(f *testing.F) {
	tok := bpetest.Tokenizer(f, "qwen3")
	d := New(tok)
	f.Add("<think>a</think>b<tool_call>{\"name\":\"f\"}</tool_call>c")
	f.Add("<tool_call><function=f><parameter=a>1</parameter></function></tool_call>")
	f.Add("</think></tool_call><tool_call>")
	f.Fuzz(func(t *testing.T, text string) {
		ids, err := tok.AppendTokens(nil, text)
		if err != nil {
			return
		}
		full := d.text(ids)
		m := d.Output(Output{IDs: ids, Tools: true})
		if m.Reasoning == "" && len(m.Calls) == 0 && m.Content != full && !strings.Contains(full, "think") && !strings.Contains(full, "THINK") {
			t.Fatalf("%q became %q", full, m.Content)
		}
		for _, c := range m.Calls {
			if c.Name == "" || !valid(c.Arguments) {
				t.Fatalf("%q became the call %+v", full, c)
			}
		}
	})
}
