package messages_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/collector/tap/translate"
)

// TestEcho checks that an answer that a client sends back becomes the engine's message again: the
// same bytes if the client keeps the bytes of each block, and the same values if it writes new
// JSON. The events of the answer contain the same blocks.
func TestEcho(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // not for secrets
		a, want := randomAnswer(r)
		m := fields(t, replyTo(t).Whole(nil, a))
		var blocks []json.RawMessage
		if err := json.Unmarshal(m["content"], &blocks); err != nil {
			t.Fatal(err)
		}
		if got := eventBlocks(t, replyTo(t).Events(nil, a)); !equalJSON(t, got, m["content"]) {
			t.Fatalf("seed %d: the events give %s, want %s", seed, got, m["content"])
		}
		if got := echoed(t, m["content"]); got != want {
			t.Fatalf("seed %d: the echo of %s is\n%s\nwant\n%s", seed, m["content"], got, want)
		}
		for i, b := range blocks {
			blocks[i] = decorated(r, b)
		}
		if got := echoed(t, list(blocks)); got != want {
			t.Fatalf("seed %d: the echo of %s is\n%s\nwant\n%s", seed, list(blocks), got, want)
		}
		if len(blocks) == 1 && len(a.Calls) == 0 && len(a.Content) > 2 {
			if got := echoed(t, a.Content); got != want {
				t.Fatalf("seed %d: the echo as a string is\n%s\nwant\n%s", seed, got, want)
			}
		}
		var values any
		d := json.NewDecoder(bytes.NewReader(m["content"]))
		d.UseNumber()
		if err := d.Decode(&values); err != nil {
			t.Fatal(err)
		}
		encoded, _ := json.Marshal(values) // the values come from JSON, so they can be encoded
		if got := echoed(t, encoded); !equalJSON(t, loose(t, got), loose(t, want)) {
			t.Fatalf("seed %d: the echo of %s is\n%s\nwant\n%s", seed, encoded, got, want)
		}
	}
}

// randomAnswer returns an answer, and the message of the engine.
func randomAnswer(r *rand.Rand) (a *translate.Answer, message string) {
	a = &translate.Answer{ID: fmt.Sprint("chatcmpl-", r.Uint64()), Model: "m", Finish: "stop"}
	message = `{"role":"assistant","content":null`
	if r.IntN(4) > 0 {
		a.Content = encode(randomText(r) + "x")
		message = `{"role":"assistant","content":` + string(a.Content)
	}
	if r.IntN(2) > 0 {
		a.Reasoning = encode(randomText(r) + "x")
		message += `,"reasoning_content":` + string(a.Reasoning)
	}
	for range r.IntN(4) {
		id, name, arguments := encode("functions."+fmt.Sprint(r.Uint64())), encode("f"), encode(randomArguments(r))
		a.Calls = append(a.Calls, translate.ToolCall{ID: id, Name: name, Arguments: arguments})
		message += fmt.Sprintf(`,{"id":%s,"type":"function","function":{"name":%s,"arguments":%s}}`, id, name, arguments)
	}
	if len(a.Calls) > 0 {
		message = strings.Replace(message, `,{"id":`, `,"tool_calls":[{"id":`, 1) + "]"
	}
	return a, message + "}"
}

func randomText(r *rand.Rand) string {
	letters := []rune("ab \n\t\"\\/\u0001\u007f<é漢🦙")
	var b strings.Builder
	for range r.IntN(20) {
		b.WriteRune(letters[r.IntN(len(letters))])
	}
	return b.String()
}

func randomArguments(r *rand.Rand) string {
	text := string(encode(randomText(r)))
	object := fmt.Sprintf(`{ "path":%s,%s"b": {"c":[1, -0.5e3, null]}}`, text, strings.Repeat(" ", r.IntN(3)))
	switch r.IntN(11) {
	case 0:
		return ""
	case 1:
		return object[:r.IntN(len(object))]
	case 2:
		return `{"_arguments":` + text + `}`
	case 3:
		return `{"_arguments":` + text + `,"a":1}`
	case 4:
		return `{"\u005farguments": ` + text + `}`
	case 5:
		return `{"a":` + text + `,"a":1}`
	case 6:
		return "[" + text + "]"
	case 7:
		return `{"a":"\ud800"}`
	case 8:
		return "{}"
	}
	return object
}

// decorated returns a block with cache_control and with its members in another order.
func decorated(r *rand.Rand, block json.RawMessage) json.RawMessage {
	text := string(block)
	if strings.HasPrefix(text, `{"type":"text",`) && r.IntN(2) > 0 {
		text = strings.Replace(text, `{"type":"text",`, "{", 1)
		return json.RawMessage(text[:len(text)-1] + `,"type":"text","citations":null,"cache_control":{"type":"ephemeral"}}`)
	}
	if strings.HasPrefix(text, `{"type":"thinking",`) {
		return block
	}
	return json.RawMessage(`{"cache_control":{"type":"ephemeral"},` + text[1:])
}

// echoed returns the assistant message for content that a client sends back.
func echoed(t *testing.T, content []byte) string {
	t.Helper()
	const before, after = `{"role":"user","content":"hi"},`, `,{"role":"user","content":"go on"}]`
	got := chat(t, fmt.Sprintf(`{"model":"m","max_tokens":1,"messages":[%s{"role":"assistant","content":%s}%s}`, before, content, after))
	_, got, _ = strings.Cut(got, before)
	got, _, _ = strings.Cut(got, after)
	return got
}

// eventBlocks returns the blocks that a client reads from events.
func eventBlocks(t *testing.T, events []byte) string {
	t.Helper()
	var blocks []map[string]any
	inputs := map[int]string{}
	for event := range strings.SplitSeq(strings.TrimSpace(string(events)), "\n\n") {
		name, data, _ := strings.Cut(event, "\ndata: ")
		var e struct {
			Type  string
			Index int
			Block map[string]any    `json:"content_block"`
			Delta map[string]string `json:"delta"`
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil || name != "event: "+e.Type {
			t.Fatalf("%s: %v", event, err)
		}
		switch e.Type {
		case "content_block_start":
			if e.Index != len(blocks) {
				t.Fatalf("%s: want the index %d", event, len(blocks))
			}
			blocks = append(blocks, e.Block)
		case "content_block_delta":
			if part, is := e.Delta["partial_json"]; is {
				inputs[e.Index] += part
				blocks[e.Index]["input"] = json.RawMessage(inputs[e.Index])
				continue
			}
			for key, part := range e.Delta {
				if key != "type" {
					old, _ := blocks[e.Index][key].(string)
					blocks[e.Index][key] = old + part
				}
			}
		}
	}
	if blocks == nil {
		return "[]"
	}
	out, err := json.Marshal(blocks)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// loose returns the message with arguments as values instead of texts, if they are JSON objects.
func loose(t *testing.T, message string) string {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(message), &m); err != nil {
		t.Fatalf("%v: %s", err, message)
	}
	calls, _ := m["tool_calls"].([]any)
	for _, c := range calls {
		f := c.(map[string]any)["function"].(map[string]any)
		if text := f["arguments"].(string); json.Valid([]byte(text)) && text[0] == '{' {
			f["arguments"] = json.RawMessage(text)
		}
	}
	return string(encode(m))
}

func equalJSON[A, B string | []byte | json.RawMessage](t *testing.T, a A, b B) bool {
	t.Helper()
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		t.Fatalf("not JSON: %s or %s", a, b)
	}
	return bytes.Equal(encode(x), encode(y))
}

// encode returns JSON in the engines' format.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimSpace(b.Bytes())
}

func list(values []json.RawMessage) []byte {
	return append(append([]byte("["), bytes.Join(bytesOf(values), []byte(","))...), ']')
}

func bytesOf(values []json.RawMessage) (out [][]byte) {
	for _, v := range values {
		out = append(out, v)
	}
	return out
}

// FuzzArguments sends an answer with any arguments of a tool back. The events must contain the same
// block as the whole answer, and the arguments must be the same, except for white space around an object.
func FuzzArguments(f *testing.F) {
	for _, text := range []string{
		``, `{}`, `{`, `{"a":`, `{"a": "abc`, "{\"a\": \"b\nc\"}", " {\"a\":\n\"b\"}\n", `abc`, `"abc"`, `null`, "\xff", "\n", `[{"a":1}]`, `{"a":1} x`,
		`{"_arguments":"x"}`, ` {"_arguments":"x"}`, `{"\u005farguments":"x"}`, `{"_arguments":1}`, `{"a":1,"a":2}`, `{"a":"\ud800"}`, `{\"a\": \"\ud800\"}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, arguments := range []json.RawMessage{json.RawMessage(`"` + text + `"`), encode(text)} { // an engine can write any JSON string
			if !json.Valid(arguments) || !utf8.Valid(arguments) {
				continue
			}
			a := &translate.Answer{ID: "a", Model: "m", Calls: []translate.ToolCall{{ID: encode("c"), Name: encode("f"), Arguments: arguments}}}
			content := fields(t, replyTo(t).Whole(nil, a))["content"]
			if got := eventBlocks(t, replyTo(t).Events(nil, a)); !equalJSON(t, got, content) {
				t.Fatalf("%s: the events give %s, want %s", arguments, got, content)
			}
			var m struct {
				Calls []struct {
					Function struct{ Arguments json.RawMessage }
				} `json:"tool_calls"`
			}
			if err := json.Unmarshal([]byte(echoed(t, content)), &m); err != nil || len(m.Calls) != 1 {
				t.Fatalf("%s: %v: %s", arguments, err, echoed(t, content))
			}
			if got := m.Calls[0].Function.Arguments; string(got) != string(arguments) && trimmed(t, got) != trimmed(t, arguments) {
				t.Fatalf("%s comes back as %s", arguments, got)
			}
		}
	})
}

// trimmed returns the text of a JSON string without the white space at its ends.
func trimmed(t *testing.T, value json.RawMessage) (text string) {
	t.Helper()
	if err := json.Unmarshal(value, &text); err != nil {
		t.Fatal(err)
	}
	return strings.Trim(text, " \n\r\t")
}
