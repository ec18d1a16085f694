package chat_test

import (
	"encoding/json"
	"flag"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

var seed = flag.Uint64("seed", 0, "seed of the random comparisons with Python; 0 takes a new one")

// source returns a random generator and logs its seed.
func source(t *testing.T) *rand.Rand {
	t.Helper()
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d (replay: go test ./tokenize/chat -run '^%s$' -args -seed=%d)", s, t.Name(), s)
	return rand.New(rand.NewPCG(s, 1))
}

// A conversationGen generates random conversations as JSON text, so that both sides see the same
// order of keys and notation of numbers.
type conversationGen struct {
	*rand.Rand
	ids []string
	// unsure adds keys without a value to messages, and reasoning under several names.
	unsure bool
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func (k *conversationGen) one(in int) bool { return k.IntN(in) == 0 }

var words = []string{
	"Hi", "there", "\n", "\n\n", " ", "  ", "\t", "weather", "Zürich", "再乘以三", "🙂", "<b>", "&", "'", `"`, `\`,
	"{{ x }}", "{% if %}", "{#", "<think>", "</think>", "<think>\n", "\n</think>\n\n", "<|im_end|>", "<|im_start|>",
	"<tool_call>", "</tool_call>", "[INST]", "[/INST]", "</s>", "<s_bos>", "%s", "%d", "None", "null", "\r\n", "\u00a0",
	"\u2028", "\x1c", "\x00", "e\u0301", "\u200b", "\u0130", "ß", "ΣΑΣ", "don't", "1.0", "-3e-07", "/nothink",
	"<｜tool▁calls▁begin｜>", "final", "analysis", "<|channel|>", "```json\n", "```", "[TOOL_RESULTS]", "assistantfinal",
}

func (k *conversationGen) text() string {
	switch k.IntN(12) {
	case 0:
		return ""
	case 1:
		return pick(k.Rand, " ", "\n", "\n\n \t", "<think></think>", "{}", "[]", "null", "{\"a\": 1}", "[{\"a\": [1.0]}]", "/think", "x")
	}
	var b strings.Builder
	for range 1 + k.IntN(8) {
		b.WriteString(pick(k.Rand, words...))
		if k.one(2) {
			b.WriteByte(' ')
		}
	}
	return b.String()
}

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

func (k *conversationGen) number() string {
	return pick(k.Rand, "0", "-0", "1", "3", "-7", "2147483648", "9007199254740993", "-9223372036854775808", "9223372036854775808",
		"123456789012345678901234567890", "0.0", "-0.0", "1.0", "2.5", "-3e-07", "1e20", "1E16", "1e15", "0.0001", "0.00001",
		"1e400", "-1e400", "1e-400", "0.1", "123456.789e3", "3.14159265358979", "5e-324", "1.7976931348623157e308", "NaN", "Infinity", "-Infinity")
}

func (k *conversationGen) value(depth int) string {
	n := 8
	if depth <= 0 {
		n = 5
	}
	switch k.IntN(n) {
	case 0:
		return pick(k.Rand, "null", "true", "false")
	case 1, 2:
		return k.number()
	case 3, 4:
		return quoted(k.text())
	case 5:
		var parts []string
		for range k.IntN(4) {
			parts = append(parts, k.value(depth-1))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return k.object(depth, k.IntN(5))
}

func (k *conversationGen) object(depth, n int) string {
	var o object
	for range n {
		o.add(pick(k.Rand, "city", "days", "Zebra", "a", "B", "ключ", "with space", "items", "keys", "get", "type", "x-y", "q\"q", "", "nested", "10", "2"), k.value(depth-1))
	}
	return o.String()
}

// An object is a JSON object under construction. It can repeat a name.
type object struct{ parts []string }

func (o *object) add(name, js string)    { o.parts = append(o.parts, quoted(name)+": "+js) }
func (o *object) addText(name, s string) { o.add(name, quoted(s)) }
func (o *object) shuffle(r *rand.Rand) {
	r.Shuffle(len(o.parts), func(i, j int) { o.parts[i], o.parts[j] = o.parts[j], o.parts[i] })
}
func (o *object) String() string { return "{" + strings.Join(o.parts, ", ") + "}" }
func list(parts []string) string { return "[" + strings.Join(parts, ", ") + "]" }

func (k *conversationGen) content(role string) string {
	switch k.IntN(14) {
	case 0:
		return "null"
	case 1:
		var parts []string
		for range k.IntN(4) {
			var o object
			o.addText("type", pick(k.Rand, "text", "text", "text", "image", "image_url", "video", "thinking", "audio"))
			if !k.one(6) {
				o.addText(pick(k.Rand, "text", "text", "text", "thinking", "content"), k.text())
			}
			if k.one(5) {
				o.shuffle(k.Rand)
			}
			parts = append(parts, o.String())
		}
		return list(parts)
	case 2:
		if role == "tool" {
			return k.value(2)
		}
	}
	return quoted(k.text())
}

func (k *conversationGen) call() string {
	id := pick(k.Rand, "call00001", "call_abc", "123456789", "abcdefghi", "functions.get_weather:0", "x")
	k.ids = append(k.ids, id)
	var fn object
	fn.addText("name", pick(k.Rand, "get_weather", "run_bash", "search", "python", "browser.open", "ünï"))
	if !k.one(12) {
		args := k.object(2, k.IntN(4))
		switch k.IntN(5) {
		case 0:
			args = quoted(args)
		case 1:
			args = pick(k.Rand, `"{}"`, `{}`, `"not json"`, `""`, "null", args)
		}
		fn.add("arguments", args)
	}
	if k.one(4) {
		fn.shuffle(k.Rand)
	}
	if k.one(10) {
		return fn.String() // a call without the wrapper
	}
	var o object
	if !k.one(8) {
		o.addText("id", id)
	}
	if !k.one(5) {
		o.addText("type", "function")
	}
	o.add("function", fn.String())
	if k.one(5) {
		o.shuffle(k.Rand)
	}
	return o.String()
}

func (k *conversationGen) message(role string) string {
	var o object
	o.addText("role", role)
	if !k.one(15) {
		o.add("content", k.content(role))
	}
	switch role {
	case "assistant":
		if k.one(3) {
			var calls []string
			for range k.IntN(4) {
				calls = append(calls, k.call())
			}
			o.add("tool_calls", pick(k.Rand, list(calls), list(calls), list(calls), list(calls), "null"))
		}
		if k.one(4) {
			o.add(pick(k.Rand, "reasoning_content", "reasoning_content", "thinking", "reasoning", "thought"), pick(k.Rand, quoted(k.text()), quoted(k.text()), "null", `""`))
		}
		if k.one(20) {
			o.add("prefix", "true")
		}
	case "tool":
		if !k.one(4) {
			id := "call00001"
			if len(k.ids) > 0 {
				id = pick(k.Rand, k.ids...)
			}
			o.addText("tool_call_id", id)
		}
		if !k.one(3) {
			o.addText("name", pick(k.Rand, "get_weather", "run_bash", "search"))
		}
	}
	if k.one(12) {
		o.add(pick(k.Rand, "name", "items", "copy", "tools", "weight", "loss_mask"), k.value(1))
	}
	if k.unsure {
		for k.one(3) {
			o.add(pick(k.Rand, "content", "tool_calls", "name", "refusal", "tool_call_id", "reasoning_content", "role"), "null")
		}
		for k.one(3) {
			o.addText(pick(k.Rand, "reasoning_content", "thinking", "reasoning"), k.text())
		}
	}
	if k.one(8) {
		o.shuffle(k.Rand)
	}
	return o.String()
}

func (k *conversationGen) messages() string {
	k.ids = nil
	var out []string
	if k.one(2) {
		out = append(out, k.message(pick(k.Rand, "system", "system", "system", "developer")))
	}
	if k.one(6) { // an arbitrary sequence
		for range k.IntN(6) {
			out = append(out, k.message(pick(k.Rand, "system", "user", "assistant", "tool", "developer", "ipython", "function", "weird", "")))
		}
		return list(out)
	}
	for range 1 + k.IntN(4) {
		out = append(out, k.message("user"))
		for k.one(2) {
			out = append(out, k.message("assistant"))
			for range k.IntN(3) {
				out = append(out, k.message("tool"))
			}
		}
		if !k.one(3) {
			out = append(out, k.message("assistant"))
		}
	}
	return list(out)
}

func (k *conversationGen) property(depth int) string {
	var o object
	kind := pick(k.Rand, "string", "integer", "number", "boolean", "array", "object", "null")
	if k.one(8) {
		o.add("type", `["string", "null"]`)
	} else if !k.one(10) {
		o.addText("type", kind)
	}
	if !k.one(3) {
		o.addText("description", k.text())
	}
	if k.one(4) {
		o.add("enum", list([]string{quoted("a"), quoted("b \"c\""), k.number()}))
	}
	if k.one(4) {
		o.add(pick(k.Rand, "default", "minimum", "title", "format", "nullable", "anyOf", "$ref"), k.value(1))
	}
	if kind == "array" && depth > 0 {
		o.add("items", k.property(depth-1))
	}
	if kind == "object" && depth > 0 {
		o.add("properties", k.properties(depth-1))
		if k.one(2) {
			o.add("additionalProperties", pick(k.Rand, "false", "true", k.property(0)))
		}
	}
	return o.String()
}

func (k *conversationGen) properties(depth int) string {
	var o object
	for range k.IntN(4) {
		o.add(pick(k.Rand, "city", "days", "items", "opts", "Äß", "cmd", "keys"), k.property(depth))
	}
	return o.String()
}

func (k *conversationGen) tool() string {
	var fn object
	fn.addText("name", pick(k.Rand, "get_weather", "run_bash", "search", "browser", "python"))
	if !k.one(8) {
		fn.addText("description", k.text())
	} else if k.unsure {
		fn.add("description", "null")
	}
	if !k.one(8) {
		var p object
		p.addText("type", "object")
		p.add("properties", k.properties(2))
		if k.one(2) {
			p.add("required", pick(k.Rand, `["city"]`, `[]`, `["cmd", "days"]`))
		}
		if k.one(4) {
			p.shuffle(k.Rand)
		}
		fn.add("parameters", p.String())
	}
	if k.one(6) {
		fn.add("return", k.property(1))
	}
	if k.one(4) {
		fn.shuffle(k.Rand)
	}
	if k.one(10) {
		return fn.String()
	}
	var o object
	o.addText("type", "function")
	o.add("function", fn.String())
	if k.one(6) {
		o.shuffle(k.Rand)
	}
	return o.String()
}

func (k *conversationGen) variables() string {
	var o object
	o.add("messages", k.messages())
	switch k.IntN(5) {
	case 0, 1:
		var tools []string
		for range 1 + k.IntN(3) {
			tools = append(tools, k.tool())
		}
		o.add("tools", list(tools))
	case 2:
		o.add("tools", pick(k.Rand, "null", "[]"))
	}
	o.add("add_generation_prompt", pick(k.Rand, "true", "true", "false"))
	for _, name := range []string{
		"enable_thinking", "thinking", "keep_reasoning", "reasoning_effort", "builtin_tools", "date_string", "documents",
		"tools_in_user_message", "custom_tools", "add_thoughts", "controls", "model_identity", "xml_tools", "preserve_thinking",
		"clear_thinking", "continue_final_message", "thinking_budget", "available_tools", "code_interpreter", "render_history_reasoning",
	} {
		if k.one(12) {
			o.add(name, pick(k.Rand, "true", "false", "null", `"low"`, `"high"`, "0", "512", `["python"]`, `["browser", "python"]`, "[]", "{}",
				`[{"title": "T", "text": "x"}]`, `{"length": "long"}`))
		}
	}
	return o.String()
}

// TestAgainstPython renders random conversations with all stored templates, here and in Python. The
// bytes are the same, and both fail for the same ones.
func TestAgainstPython(t *testing.T) {
	t.Parallel()
	srcs := templates(t)
	k := &conversationGen{Rand: source(t)}
	var requests []request
	names := slices.Sorted(maps.Keys(srcs))
	for range conversations {
		vars := []byte(k.variables())
		for i := range names {
			requests = append(requests, request{Name: &names[i], Vars: vars})
		}
	}
	var c comparison
	c.run(t, srcs, requests)
	t.Logf("%d conversations: %s", conversations, &c)
	if c.addresses+c.limited > 0 || len(c.refused) > 0 {
		t.Errorf("some renders cannot be compared: %s", &c)
	}
	if c.texts < c.renders/4 {
		t.Errorf("only %d of %d renders have output: the conversations are too wild to show anything", c.texts, c.renders)
	}
}

const conversations = 60
