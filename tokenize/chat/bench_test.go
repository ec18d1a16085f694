package chat_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/tokenize/chat"
)

// agentLoop returns a conversation of n messages in the shape of an agent's: a system message, a
// question, then alternating calls and results, about 300 bytes each.
func agentLoop(n int) string {
	out := []string{
		`{"role": "system", "content": "You are a careful agent.\n` + strings.Repeat("Follow the rules. ", 15) + `"}`,
		`{"role": "user", "content": "How warm is it in Zürich, and what does that mean for the hike? ` + strings.Repeat("Think. ", 20) + `"}`,
	}
	for i := 0; len(out) < n-1; i++ {
		out = append(out,
			fmt.Sprintf(`{"role": "assistant", "content": "Let me look it up. %s", "tool_calls": [{"id": "call%05d", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": %d, "opts": {"verbose": true, "z": 1.0}}}}]}`, strings.Repeat("So. ", 40), i, i),
			fmt.Sprintf(`{"role": "tool", "tool_call_id": "call%05d", "content": "{\"temp\": %d.5, \"text\": \"%s\"}"}`, i, i, strings.Repeat("sunny ", 40)))
	}
	out = append(out[:n-1], `{"role": "user", "content": "Thank you."}`)
	return "[" + strings.Join(out, ", ") + "]"
}

const benchTools = `[{"type": "function", "function": {"name": "get_weather", "description": "Get the weather for a city", "parameters": {"type": "object",
	"properties": {"city": {"type": "string", "description": "City name"}, "days": {"type": "integer", "minimum": 1}}, "required": ["city"]}}}]`

func benchInput(tb testing.TB, messages int) chat.Input {
	tb.Helper()
	m := fromJSON(tb, []byte(agentLoop(messages)))
	tools := fromJSON(tb, []byte(benchTools))
	return chat.Input{Messages: m, Tools: tools, AddGenerationPrompt: true, Now: fixedNow()}
}

func BenchmarkRender(b *testing.B) {
	srcs := templates(b)
	for _, name := range []string{"Qwen-Qwen3-0.6B", "Qwen3-Coder", "meta-llama-Llama-3.1-8B-Instruct", "GLM-4.6", "cfg_deepseek-v3.1-rtp", "openai-gpt-oss-120b"} {
		for _, n := range []int{10, 100} {
			b.Run(fmt.Sprintf("template=%s/messages=%d", name, n), func(b *testing.B) {
				tpl := parse(b, name, srcs[name+".jinja"], testOptions())
				in := benchInput(b, n)
				dst, err := tpl.Render(nil, in)
				if err != nil {
					b.Skip(err) // the template refuses the conversation
				}
				b.SetBytes(int64(len(dst)))
				b.ReportAllocs()
				for b.Loop() {
					if dst, err = tpl.Render(dst[:0], in); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkParse(b *testing.B) {
	src := templates(b)["Qwen-Qwen3-0.6B.jinja"]
	b.SetBytes(int64(len(src)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := chat.Parse("qwen3", src, chat.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFromJSON(b *testing.B) {
	for _, n := range []int{10, 100} {
		b.Run(fmt.Sprintf("messages=%d", n), func(b *testing.B) {
			js := []byte(agentLoop(n))
			b.SetBytes(int64(len(js)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := chat.FromJSON(js); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestGateRenderAllocs bounds the allocations of a 10-message render with tools (Qwen3).
func TestGateRenderAllocs(t *testing.T) {
	tpl := parse(t, "qwen3", templates(t)["Qwen-Qwen3-0.6B.jinja"], testOptions())
	in := benchInput(t, 10)
	var dst []byte
	got := testing.AllocsPerRun(50, func() {
		var err error
		if dst, err = tpl.Render(dst[:0], in); err != nil {
			t.Fatal(err)
		}
	})
	if got > 32 {
		t.Errorf("Render of 10 messages = %.0f allocations, want at most 32", got)
	}
}
