package render_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/render"
	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/tap/proxy"
)

// TestTemplates checks that the tap renders the prompts of random conversations as the engine does. The calls
// of two sessions must have the same ids: one session with rendered prompts, and one with chat completions.
// RENDER_CALLS sets the number of conversations per template.
func TestTemplates(t *testing.T) {
	t.Parallel()
	n := 40
	if text := os.Getenv("RENDER_CALLS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range families {
		for _, dialect := range []enginesim.Dialect{enginesim.DialectVLLM, enginesim.DialectSGLangPlain} {
			t.Run(f.template+"/"+dialect.String(), func(t *testing.T) {
				t.Parallel()
				f.compare(t, dialect, n)
			})
		}
	}
}

// compare makes n calls of each API with rendered prompts and with chat completions.
func (f *family) compare(t *testing.T, dialect enginesim.Dialect, n int) {
	t.Helper()
	m := f.model(t)
	engine := engineOf(t, m, dialect, f.stop)
	ours, theirs := newRig(t, engine, proxy.Config{Renderer: render.New(m)}), newRig(t, engine, proxy.Config{})
	draw := rand.New(rand.NewPCG(uint64(n), uint64(dialect)))
	refused := map[string]int{}
	for from := 0; from < n; from += 200 { // a session keeps all calls in memory until it is read
		var bodies []string
		for range min(n-from, 200) {
			asked := conversation(draw, f.tokenizer)
			for _, api := range apis {
				body := api.body(t, asked)
				bodies = append(bodies, body)
				a, textA := ours.callAt(t, api.path, body)
				b, textB := theirs.callAt(t, api.path, body)
				if a != b {
					t.Fatalf("%s: status %d with a rendered prompt, otherwise %d: %s\n%s\n%s", api.name, a, b, body, textA, textB)
				}
				if a != http.StatusOK {
					t.Log(api.name, body, textA)
					refused[api.name]++
				}
			}
		}
		samePrompts(t, bodies, ours.end(t), theirs.end(t))
		ours.begin(t)
		theirs.begin(t)
	}
	paths := map[string]int{}
	for _, c := range engine.Calls() {
		if c.Status == http.StatusOK {
			paths[c.Path]++
		}
	}
	if len(refused) > 0 || paths[roads[dialect]] < n*len(apis) || paths["/v1/chat/completions"] < n*len(apis) {
		t.Errorf("refused: %v; the engine's calls: %v", refused, paths)
	}
}

// roads contains the paths to which rendered prompts are sent.
var roads = map[enginesim.Dialect]string{enginesim.DialectVLLM: "/v1/completions", enginesim.DialectSGLangPlain: "/generate"}

func samePrompts(t *testing.T, bodies []string, ours, theirs []session.Call) {
	t.Helper()
	if len(ours) != len(bodies) || len(theirs) != len(bodies) {
		t.Fatalf("%d and %d calls were recorded, want %d", len(ours), len(theirs), len(bodies))
	}
	for i := range ours {
		a, b := &ours[i], &theirs[i]
		if !slices.Equal(a.Prompt, b.Prompt) || a.Status == http.StatusOK && (len(a.Prompt) == 0 || a.Unread != "" || len(a.Output) == 0) {
			t.Fatalf("%s: rendered (%d ids, %q) %v, the engine's (%d ids, %q) %v", bodies[i], len(a.Prompt), a.Unread, a.Prompt, len(b.Prompt), b.Unread, b.Prompt)
		}
	}
}

var texts = []string{
	"", "Hello.", " two  spaces ", "\n\nlines\n", "naïve café – 日本語 🎉🏽 عربى", "a\u200bb\u200d", `{"a": [1, 2.50, 1e3]}`, "<b>&amp;</b> \"quoted\" \\n",
	"def f(x):\n\treturn x  # tab\n", strings.Repeat("word ", 40), "1234567890", "ÅÅ", "</thing>", "It's 5 o'clock, isn't it?",
}

// conversation returns the body of a random chat completion.
func conversation(draw *rand.Rand, tokenizer string) map[string]any {
	text := func() string {
		s := texts[draw.IntN(len(texts))]
		if draw.IntN(3) == 0 {
			s += texts[draw.IntN(len(texts))]
		}
		return s
	}
	var messages []any
	add := func(members ...any) {
		m := map[string]any{}
		for i := 0; i < len(members); i += 2 {
			m[members[i].(string)] = members[i+1]
		}
		messages = append(messages, m)
	}
	if draw.IntN(2) == 0 {
		add("role", []string{"system", "developer"}[draw.IntN(2)], "content", "Be brief. "+text())
	}
	body := map[string]any{"max_tokens": 8, "stream": draw.IntN(2) == 0}
	tools := draw.IntN(3) > 0
	if tools {
		body["tools"] = []any{
			tool("add", map[string]any{"a": map[string]any{"type": "integer", "description": text()}, "b": map[string]any{"type": "integer"}}),
			tool("write_file", map[string]any{"path": map[string]any{"type": "string"}, "content": map[string]any{"type": "string", "default": "ü"}}),
		}
	}
	for range 1 + draw.IntN(3) {
		if draw.IntN(4) == 0 {
			add("role", "user", "content", []any{map[string]any{"type": "text", "text": text()}, map[string]any{"type": "text", "text": "More."}})
		} else {
			add("role", "user", "content", "Do it. "+text())
		}
		for range draw.IntN(3) {
			if !tools {
				break
			}
			var calls []any
			parallel := 1 + draw.IntN(2)
			if strings.HasPrefix(tokenizer, "llama") || tokenizer == "gpt-oss" {
				parallel = 1 // their templates reject several calls in one message
			}
			first := len(messages)
			for k := range parallel {
				arguments := fmt.Sprintf([]string{`{"a": %d, "b": 2.0}`, `{"b":%d,"a":1}`, `{"path":"f%d","content":"<a>\n\u00e9"}`, `{"a":{"z":[%d,null],"y":true}}`}[draw.IntN(4)], draw.IntN(99))
				calls = append(calls, map[string]any{
					"id": fmt.Sprintf("call%02d%03d", first, k), "type": "function", "function": map[string]any{"name": "add", "arguments": arguments},
				})
			}
			m := map[string]any{"role": "assistant", "tool_calls": calls, "content": []any{nil, "", "I add."}[draw.IntN(3)]}
			if draw.IntN(2) == 0 && tokenizer != "gpt-oss" {
				m[[]string{"reasoning", "reasoning_content"}[draw.IntN(2)]] = "I think. " + text()
			}
			messages = append(messages, m)
			for k := range parallel {
				add("role", "tool", "tool_call_id", fmt.Sprintf("call%02d%03d", first, k), "content", text())
			}
		}
		m := map[string]any{"role": "assistant", "content": "Done. " + text()}
		if draw.IntN(3) == 0 {
			m["reasoning_content"] = text()
		}
		messages = append(messages, m)
	}
	add("role", "user", "content", text())
	body["messages"] = messages
	return body
}

func tool(name string, properties map[string]any) map[string]any {
	return map[string]any{"type": "function", "function": map[string]any{
		"name": name, "description": "Does " + name + " – well.", "parameters": map[string]any{"type": "object", "properties": properties, "required": []string{}},
	}}
}
