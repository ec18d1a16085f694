package enginesim

import (
	"encoding/json"
	"strings"
	"testing"
)

// FuzzParse: the parts of a text that become visible one after another make up the whole answer,
// wherever the stream is divided.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"Hello.", "\n\nHello. <tool_call>\n{\"name\": \"a\", \"arguments\": {\"b\": \"é🎉\"}}\n</tool_call> Then\n<tool_call>{\"arguments\": 1, \"name\": \"c\"}</tool_call>\nend\n",
		"<think>\nHm 日本.\n</think>\n\nYes.", "<think>never ends", "<tool_call>\n{\"name\": 1}\n</tool_call>", "<think></think><tool_call>{\"name\":\"x\"}</tool_call>",
	} {
		f.Add(text, uint8(3), true, true, true)
		f.Add(text, uint8(1), true, false, false)
	}
	f.Fuzz(func(t *testing.T, text string, step uint8, tools, reasoning, sglang bool) {
		e := &Engine{cfg: Config{Reasoning: reasoning}}
		if sglang {
			e.cfg.Dialect = DialectSGLang
		}
		p := e.parse(text, tools, func(int) string { return "id" })
		var content, thought strings.Builder
		names, arguments := make([]string, len(p.calls)), make([]string, len(p.calls))
		seen := make([]int, len(p.pieces))
		for n := 0; ; n += int(step)%16 + 1 {
			n = min(n, len(text))
			for i := range p.pieces {
				c := &p.pieces[i]
				had, has := seen[i], p.seen(c, n)
				if has < had {
					t.Fatalf("piece %d shrinks from %d to %d", i, had, has)
				}
				seen[i] = has
				switch part := c.text[had:has]; c.kind {
				case contentPiece:
					content.WriteString(part)
				case reasoningPiece:
					thought.WriteString(part)
				case namePiece:
					names[c.call] += part
				case argumentsPiece:
					arguments[c.call] += part
				}
			}
			if n == len(text) {
				break
			}
		}
		if content.String() != p.content || thought.String() != p.reasoning {
			t.Errorf("%q %q, whole %q %q", content.String(), thought.String(), p.content, p.reasoning)
		}
		for i, call := range p.calls {
			if names[i] != call.name || arguments[i] != call.arguments {
				t.Errorf("call %d: %q %q, whole %+v", i, names[i], arguments[i], call)
			}
		}
		if !tools && !reasoning && p.content != text {
			t.Errorf("%q became %q", text, p.content)
		}
	})
}

// FuzzArguments: whatever the schema, the arguments are a JSON object with all required members.
func FuzzArguments(f *testing.F) {
	for _, schema := range []string{
		`{}`, `null`, `[]`, `{"type":"object","required":["a","a","b"],"properties":{"a":{"type":["null","integer"],"minimum":3},"b":{"type":"array","minItems":2,"items":{"enum":["x"]}}}}`,
		`{"required":["command"],"properties":{"command":{"type":"array"}}}`, `{"properties":{"cmd":{"type":"string"}}}`,
		`{"required":["x"],"properties":{"x":{"$ref":"#/$defs/x"}},"$defs":{"x":{"type":"object","required":["y","z"],"properties":{"y":{"$ref":"#/$defs/x"},"z":{"$ref":"#/$defs/x"}}}}}`,
		`{"required":["x"],"properties":{"x":{"oneOf":[{"type":"null"},{"allOf":[{"type":"boolean"}]}]}}}`, `{"required":["x"],"properties":{"x":{"type":"number","default":0.5}}}`,
		`{"required":["x"],"properties":{"x":{"const":{"a":1},"minLength":1000000000,"minItems":1000000000}}}`,
	} {
		f.Add(schema)
	}
	f.Fuzz(func(t *testing.T, schema string) {
		if !json.Valid([]byte(schema)) {
			return
		}
		for _, tool := range parseTools(json.RawMessage(`[{"function":{"name":"t","parameters":` + schema + `}}]`)) {
			text := tool.arguments(map[string]string{"command": "ls > \"x\"", "prompt": "Do <it>.", "note": "note-1-1"})
			var members map[string]json.RawMessage
			if err := json.Unmarshal([]byte(text), &members); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			for _, name := range tool.Parameters.Required {
				if _, ok := members[strings.ToValidUTF8(name, "\uFFFD")]; !ok {
					t.Errorf("%s lacks %q", text, name)
				}
			}
		}
	})
}
