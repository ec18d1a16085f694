package reasoning_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/reasoning"
	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/bpe"
	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
	"github.com/rollout-rl/rollout/tokenize/chat"
	"github.com/rollout-rl/rollout/tokenize/tokenizetest"
)

var parsed = sync.OnceValues(func() (map[string]*chat.Template, error) {
	raw, err := tokenizetest.Gunzip("../../testdata/chat-templates/templates.json.gz")
	var sources map[string]string
	if err := errors.Join(err, json.Unmarshal(raw, &sources)); err != nil {
		return nil, err
	}
	out := map[string]*chat.Template{}
	for name, source := range sources {
		if out[name], err = chat.Parse(name, source, chat.Options{}); err != nil {
			return nil, err
		}
	}
	return out, nil
})

func templates(t *testing.T) map[string]*chat.Template {
	t.Helper()
	all, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func split(s *reasoning.Splitter, text string) *collector.Reply {
	r := &collector.Reply{Output: text, Text: text}
	s.Split(r, nil)
	return r
}

// prints lists the ways to put a thought into a message. Each template reads one of them.
var prints = []string{
	`{"role":"assistant","content":"ANSWER","reasoning":"THOUGHT","reasoning_content":"THOUGHT","thinking":"THOUGHT","thought":"THOUGHT"}`,
	`{"role":"assistant","content":[{"type":"thinking","thinking":"THOUGHT"},{"type":"text","text":"ANSWER"}]}`,
	`{"role":"assistant","content":{"blocks":[{"type":"thoughts","text":"THOUGHT"},{"type":"response","text":"ANSWER"}]}}`, // Apertus
}

// For every template that prints a thought, the answer is found in its output: whole, cut inside
// the thought, and with a marker that the answer quotes.
func TestTemplatesThatPrintThoughts(t *testing.T) {
	t.Parallel()
	const thought, answer = "Is it 42? No, I think it is 41.", "The answer is 41."
	const user = `{"role":"user","content":"Hello"}`
	fill := strings.NewReplacer("THOUGHT", thought, "ANSWER", answer)
	found := 0
	for name, template := range templates(t) {
		s := reasoning.New(&reasoning.Model{Template: template})
		for i, message := range prints {
			render := func(messages string, add bool) string {
				list, err := chat.FromJSON([]byte("[" + messages + "]"))
				if err != nil {
					t.Fatal(err)
				}
				at := time.Date(2026, time.November, 25, 0, 0, 0, 0, time.UTC)
				text, err := template.Render(nil, chat.Input{Messages: list, AddGenerationPrompt: add, Now: at})
				if err != nil {
					return ""
				}
				return string(text)
			}
			text := render(user+","+fill.Replace(message), false)
			before, rest, ok := strings.Cut(text, thought)
			if !ok || !strings.Contains(rest, answer) || strings.Contains(text, "'type'") || strings.Contains(text, `"type"`) {
				continue // it prints no thought, or prints the list that contains the thought
			}
			found++
			// The output starts where the generation prompt ends. If that prompt is not a prefix of
			// the conversation, the output starts at the word before the thought.
			output := ""
			if prompt := render(user, true); strings.HasPrefix(text, strings.TrimRight(prompt, "\n ")) {
				output = text[len(strings.TrimRight(prompt, "\n ")):]
			} else {
				output = text[max(strings.LastIndexAny(before, "<["), 0):]
			}
			end := strings.LastIndex(output, answer) + len(answer)
			if got := split(s, output[:end]); got.Output != answer || !strings.Contains(got.Reasoning, thought) || strings.Contains(got.Reasoning, answer) {
				t.Errorf("%s, %d: of %q the answer is %q, and the reasoning %q", name, i, output[:end], got.Output, got.Reasoning)
			}
			if strings.Contains(template.Source(), "<|message|>") {
				continue // its messages are divided by tokens that are not in the text
			}
			cut := strings.Index(output, thought) + len(thought)
			if got := split(s, output[:cut]); got.Output != "" || !strings.Contains(got.Reasoning, thought) {
				t.Errorf("%s, %d: the answer of the cut text %q is %q", name, i, output[:cut], got.Output)
			}
			mark := strings.TrimSpace(output[cut : end-len(answer)])
			mark = mark[:strings.IndexAny(mark, ">]▷")+1]
			if quoted := output[:end] + " A quoted " + mark + " is no mark."; split(s, quoted).Output != answer+" A quoted "+mark+" is no mark." {
				t.Errorf("%s, %d: of %q the answer is %q", name, i, quoted, split(s, quoted).Output)
			}
		}
	}
	if found < 29 {
		t.Errorf("%d templates print a thought", found)
	}
	t.Logf("%d templates print a thought", found)
}

// With templates that have no reasoning, the whole output is the answer.
func TestTemplatesWithoutReasoning(t *testing.T) {
	t.Parallel()
	const text = "<think>\nIs it 42?\n</think>\n\n41"
	var without []string
	for name, template := range templates(t) {
		if r := split(reasoning.New(&reasoning.Model{Template: template}), text); r.Output == text && r.Reasoning == "" {
			without = append(without, name)
		}
	}
	slices.Sort(without)
	for _, name := range []string{"Qwen-Qwen2.5-7B-Instruct.jinja", "meta-llama-Llama-3.1-8B-Instruct.jinja", "mistral-common_v7.jinja", "google-gemma-2-2b-it.jinja"} {
		if !slices.Contains(without, name) {
			t.Errorf("%s has reasoning", name)
		}
	}
	for _, name := range []string{"Qwen-Qwen3-0.6B.jinja", "llama-cpp-deepseek-r1.jinja", "LFM2.5-Instruct.jinja", "deepseek-ai-DeepSeek-V4.jinja", "zai-GLM-4.5.jinja"} {
		if slices.Contains(without, name) {
			t.Errorf("%s has no reasoning", name)
		}
	}
	t.Logf("%d without <think>: %v", len(without), without)
}

// TestRules checks the rules with three templates: Qwen 3, whose prompt does not open the
// reasoning, Step 3.5, whose prompt does, and none.
func TestRules(t *testing.T) {
	t.Parallel()
	all := templates(t)
	const qwen3, step, none = "Qwen-Qwen3-0.6B.jinja", "stepfun-ai-Step-3.5-Flash.jinja", ""
	for _, tt := range []struct{ template, text, answer, reasoning string }{
		{qwen3, "<think>\n42?\n</think>\n\n41", "41", "42?"},
		{qwen3, "<think>\n\n</think>\n\n41", "41", ""},
		{qwen3, "41", "41", ""},
		{qwen3, "", "", ""},
		{qwen3, "<think>\n42", "", "42"},
		{qwen3, "<think>", "", ""},
		{qwen3, " \n<think>42</think>41", "41", "42"},
		{qwen3, "<think>42</think>", "", "42"},
		{qwen3, "<think>a</think>The mark </think> ends it. 41", "The mark </think> ends it. 41", "a"},
		{qwen3, "<think>a <think>b</think> c</think>41", "c</think>41", "a <think>b"},
		{qwen3, "<think>42</think>\n\n<think>43</think>\n\n41", "41", "42\n43"},
		{qwen3, "<think>42</think>Hm. <think>43</think>41", "Hm. 41", "42\n43"},
		{qwen3, "Sure! <think>42</think>41", "Sure! 41", "42"},
		{qwen3, "<think>42</think>\n<think>43", "", "42\n43"},
		{qwen3, "<think>42</think>41\n<think>\n43", "", "42\n43"},
		{qwen3, "<think>42</think>Qwen writes `<think>` first. 41", "Qwen writes `<think>` first. 41", "42"},
		{qwen3, "Qwen writes <think> first. 41", "Qwen writes <think> first. 41", ""},
		{qwen3, "42\n</think>\n\n41", "41", "42"},
		{qwen3, "42 or so</think>\n41", "41", "42 or so"},
		{qwen3, "Qwen writes </think> last. 41", "Qwen writes </think> last. 41", ""},
		{qwen3, "[THINK]42[/THINK]41", "[THINK]42[/THINK]41", ""},
		{qwen3, "<think>42</think><response>41</response>", "<response>41</response>", "42"},
		{qwen3, "<think>42</think>41<tool_call>\n{}\n</tool_call>", "41", "42"},

		{step, "42?\n</think>\n\n41", "41", "42?"},
		{step, "<think>\n42?\n</think>\n\n41", "41", "42?"},
		{step, "I quote </think> 41", "41", "I quote"},
		{step, "42", "", "42"},
		{step, "42?</think>41 </think> 43", "41 </think> 43", "42?"},
		{step, "", "", ""},

		{none, "<think>42</think>41", "41", "42"},
		{none, "42</think>41", "41", "42"},
		{none, "41", "41", ""},
		{none, "<think>42", "", "42"},
		{none, "[THINK]42[/THINK]41", "41", "42"},
		{none, "<seed:think>42</seed:think>41", "41", "42"},
		{none, "◁think▷42◁/think▷41", "41", "42"},
		{none, "<|START_THINKING|>42<|END_THINKING|><|START_RESPONSE|>41<|END_RESPONSE|>", "41", "42"},
		{none, "<|channel>thought\n42<channel|>41", "41", "thought\n42"},
		{none, "<|channel|>analysis<|message|>42<|end|><|start|>assistant<|channel|>final<|message|>41", "41", "42"},
		{none, "<|channel|>analysis<|message|>42", "", "42"},
		{none, "analysis42?assistantfinal41", "41", "42?"},
		{none, "analysis of the data gives 41", "analysis of the data gives 41", ""},
		{none, "Here are my reasoning steps:\n1. So 41", "Here are my reasoning steps:\n1. So 41", ""},
		{none, "Here are my reasoning steps:\n42\n[BEGIN FINAL RESPONSE]\n41\n[END FINAL RESPONSE]", "41", "Here are my reasoning steps:\n42"},
		{none, "<reasoning>42</reasoning><answer>41</answer>", "<answer>41</answer>", "42"},
	} {
		var m *reasoning.Model
		if tt.template != "" {
			m = &reasoning.Model{Template: all[tt.template]}
		}
		if got := split(reasoning.New(m), tt.text); got.Output != tt.answer || got.Reasoning != tt.reasoning || got.Text != tt.text {
			t.Errorf("%s: of %q the answer is %q and the reasoning %q, want %q and %q", tt.template, tt.text, got.Output, got.Reasoning, tt.answer, tt.reasoning)
		}
	}
}

// With Include, the whole text is the output.
func TestInclude(t *testing.T) {
	t.Parallel()
	s := reasoning.New(nil)
	s.Include = true
	if r := split(s, "<think>42</think>41"); r.Output != r.Text || r.Reasoning != "42" {
		t.Errorf("output %q, reasoning %q", r.Output, r.Reasoning)
	}
}

// Unknown markers are found in the text that the template prints.
func TestMadeUpMarks(t *testing.T) {
	t.Parallel()
	for source, output := range map[string]string{
		`{% for m in messages %}<|{{ m.role }}|>{% if m.reasoning_content %}<ponder>{{ m.reasoning_content }}</ponder>{% endif %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}`:          "<ponder>42</ponder>41",
		`{% for m in messages %}[{{ m.role }}]{% if m.thinking %}{{ "\n((mull))" + m.thinking + "((done))\n" }}{% endif %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}[assistant]{{ "\n((mull))" }}{% endif %}`: "42((done))\n41",
	} {
		template, err := chat.Parse("made", source, chat.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if r := split(reasoning.New(&reasoning.Model{Template: template}), output); r.Output != "41" || r.Reasoning != "42" {
			t.Errorf("of %q the answer is %q and the reasoning %q", output, r.Output, r.Reasoning)
		}
	}
}

func replyOf(text string, call tokenize.Call) (*collector.Reply, []tokenize.Call) {
	return &collector.Reply{
		Output: text, Text: text,
		Sends: []collector.Send{{Turns: []tokenize.Turn{{Role: tokenize.RoleAssistant, OutputIDs: call.OutputIDs, Content: text}}}},
	}, []tokenize.Call{call}
}

func encode(t *testing.T, tok *bpe.Tokenizer, text string) []int32 {
	t.Helper()
	ids, err := tok.AppendTokens(nil, text)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// The markers of gpt-oss are special tokens, which the engine's text omits. The answer is found in
// the tokens.
func TestSpecialTokens(t *testing.T) {
	t.Parallel()
	tok := bpetest.Tokenizer(t, "gpt-oss")
	s := reasoning.New(&reasoning.Model{Template: templates(t)["openai-gpt-oss-120b.jinja"], Tokenizer: tok})
	for _, tt := range []struct{ output, answer, reasoning string }{
		{"<|channel|>analysis<|message|>Is it 42?<|end|><|start|>assistant<|channel|>final<|message|>It is 41.<|return|>", "It is 41.", "Is it 42?"},
		{"<|channel|>analysis<|message|>Is it 42?", "", "Is it 42?"},
		{"<|channel|>analysis<|message|>Is it 42?<|end|><|start|>assistant<|channel|>ana", "", "Is it 42?"},
		{"<|channel|>ana", "", ""},
		{"<|channel|>final<|message|>It is 41.<|return|>", "It is 41.", ""},
		{"<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary<|message|>Is it 42?<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|><|start|>assistant<|channel|>final<|message|>41<|return|>", "41", "a\nb"},
		{"<|channel|>analysis<|message|>a<|end|><|start|>assistant to=functions.f<|channel|>commentary <|constrain|>json<|message|>{\"x\":42}<|call|>", "", "a"},
		{"It is 41.<|return|>", "It is 41.", ""},
		{"analysis of it gives 41.<|return|>", "analysis of it gives 41.", ""},
	} {
		ids := encode(t, tok, tt.output)
		text, err := tok.AppendText(nil, ids, bpe.DecodeOptions{SkipSpecial: true})
		if err != nil {
			t.Fatal(err)
		}
		prompt := encode(t, tok, "<|start|>user<|message|>Hello<|end|><|start|>assistant")
		for _, known := range [][]int32{prompt, nil} {
			r, calls := replyOf(strings.TrimSpace(string(text)), tokenize.Call{PromptIDs: known, OutputIDs: ids})
			if s.Split(r, calls); r.Output != tt.answer || r.Reasoning != tt.reasoning {
				t.Errorf("%q: the answer is %q and the reasoning %q, want %q and %q", tt.output, r.Output, r.Reasoning, tt.answer, tt.reasoning)
			}
		}
		// Without the calls, only the text is known.
		if r := split(s, strings.TrimSpace(string(text))); strings.Contains(r.Output, "42") && tt.answer != "" {
			t.Errorf("%q: of the text alone the answer is %q", tt.output, r.Output)
		}
	}
}

// The prompt of the call shows whether the reasoning is open. The tokens show whether the server
// removed the reasoning.
func TestPromptOfTheCall(t *testing.T) {
	t.Parallel()
	tok := bpetest.Tokenizer(t, "qwen3")
	s := reasoning.New(&reasoning.Model{Template: templates(t)["Qwen-Qwen3-0.6B.jinja"], Tokenizer: tok})
	for _, tt := range []struct{ name, prompt, output, text, finish, answer string }{
		{"open, cut", "<|im_start|>assistant\n<think>\n", "Is it 42?", "Is it 42?", "length", ""},
		{"open, ended", "<|im_start|>assistant\n<think>\n", "42?\n</think>\n\n41<|im_end|>", "42?\n</think>\n\n41", "stop", "41"},
		{"open, the server cut it off", "<|im_start|>assistant\n<think>\n", "42?\n</think>\n\n41<|im_end|>", "41", "stop", "41"},
		{"closed", "<|im_start|>assistant\n<think>\n\n</think>\n\n", "It ends with\n</think>\n41<|im_end|>", "It ends with\n</think>\n41", "stop", "It ends with\n</think>\n41"},
		{"not open", "<|im_start|>assistant\n", "41<|im_end|>", "41", "stop", "41"},
		{"not open, the server cut it off", "<|im_start|>assistant\n", "<think>\n42\n</think>\n\n41<|im_end|>", "41", "stop", "41"},
		{"a tool call in the thought", "<|im_start|>assistant\n", "<think>I could <tool_call> it.</think>41<tool_call>{}</tool_call><|im_end|>", "<think>I could", "stop", "41"},
		{"a later one is cut", "<|im_start|>assistant\n", "<think>a</think>41? <think>42", "<think>a</think>41? <think>42", "length", ""},
		{"a later one is a quotation", "<|im_start|>assistant\n", "<think>a</think>41 <think> b<|im_end|>", "<think>a</think>41 <think> b", "stop", "41 <think> b"},
	} {
		r, calls := replyOf(tt.text, tokenize.Call{PromptIDs: encode(t, tok, "<|im_start|>user\nHello<|im_end|>\n"+tt.prompt), OutputIDs: encode(t, tok, tt.output), FinishReason: tt.finish})
		if s.Split(r, calls); r.Output != tt.answer {
			t.Errorf("%s: the answer is %q, want %q", tt.name, r.Output, tt.answer)
		}
	}
}

// If the template contains no markers, the tokenizer's markers are used.
func TestMarksOfTheTokenizer(t *testing.T) {
	t.Parallel()
	template := templates(t)["Qwen-Qwen2.5-7B-Instruct.jinja"]
	for name, want := range map[string]string{"qwen3": "41", "qwen2.5": "<think>42</think>41"} {
		s := reasoning.New(&reasoning.Model{Template: template, Tokenizer: bpetest.Tokenizer(t, name)})
		if r := split(s, "<think>42</think>41"); r.Output != want {
			t.Errorf("%s: the answer is %q, want %q", name, r.Output, want)
		}
	}
}

func FuzzSplit(f *testing.F) {
	f.Add("<think>42</think>41")
	f.Add("<|channel|>analysis<|message|>42<|end|><|start|>assistant<|channel|>final<|message|>41")
	f.Add("analysis42assistantfinal41 [BEGIN FINAL RESPONSE] <|START_RESPONSE|>")
	s := reasoning.New(nil)
	f.Fuzz(func(t *testing.T, text string) {
		r := split(s, text)
		if len(r.Output)+len(r.Reasoning) > len(text)+len(text) || r.Text != text {
			t.Fatalf("%q and %q of %q", r.Output, r.Reasoning, text)
		}
	})
}
