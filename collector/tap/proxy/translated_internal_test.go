package proxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rollout-rl/rollout/collector/tap/translate"
	"github.com/rollout-rl/rollout/tokenize"
)

// apiSeeds contains requests with nearly all members that the dialects translate, in the order of apis.
var apiSeeds = map[string][]string{
	"messages": {`{"model":"m","max_tokens":100,"stream":true,"temperature":0.5,"top_p":1,"top_k":20,"stop_sequences":["x","\n"],
"system":[{"type":"text","text":"x-anthropic-billing-header: 1"},{"type":"text","text":"Be terse.","cache_control":{"type":"ephemeral"}}],
"tools":[{"name":"add","description":"Add.","input_schema":{"type":"object","properties":{"a":{"type":"number"}}},"strict":true},{"type":"custom","name":"now","input_schema":{}}],
"tool_choice":{"type":"auto","disable_parallel_tool_use":true},"thinking":{"type":"adaptive"},"metadata":{"user_id":"u"},"service_tier":"auto",
"output_config":{"effort":"high","format":{"type":"json_schema","schema":{"type":"object"}}},"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]},
"messages":[{"role":"user","content":"Hi"},{"role":"system","content":[{"type":"text","text":"Today."}]},
{"role":"assistant","content":[{"type":"thinking","thinking":"2 plus 2","signature":"s"},{"type":"text","text":"4\u00e9"},{"type":"tool_use","id":"t1","name":"add","input":{"a":1.0}},{"type":"tool_use","id":"t2","name":"now","input":{"_arguments":"{"}}]},
{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"5","is_error":false},{"type":"tool_result","tool_use_id":"t2","content":[{"type":"text","text":"6"}]},
{"type":"text","text":"So?"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aaaa"}},{"type":"image","source":{"type":"url","url":"http://x/y"}}]}]}`},
	"responses": {`{"model":"m","instructions":"Be terse.","stream":true,"store":false,"temperature":0.5,"top_p":1,"max_output_tokens":100,"parallel_tool_calls":true,"tool_choice":"auto",
"reasoning":{"effort":"high","summary":"auto"},"text":{"format":{"type":"json_schema","name":"x","schema":{"type":"object"},"strict":true},"verbosity":"low"},"truncation":"disabled",
"include":["reasoning.encrypted_content"],"prompt_cache_key":"k","metadata":{"a":"b"},"client_metadata":{"x":"y"},"user":"u","service_tier":"auto",
"tools":[{"type":"function","name":"add","description":"Add.","parameters":{"type":"object"},"strict":false},{"type":"custom","name":"patch","description":"P","format":{"type":"grammar","syntax":"lark","definition":"start: x"}},
{"type":"namespace","name":"ns","description":"N","tools":[{"type":"function","name":"spawn","parameters":{},"strict":false}]},{"type":"web_search"}],
"input":[{"type":"message","role":"developer","content":[{"type":"input_text","text":"Dev."}]},{"role":"user","content":"Hi"},
{"type":"reasoning","id":"rs_a_1_0","summary":[],"content":[{"type":"reasoning_text","text":"2 plus 2"}],"encrypted_content":null},
{"type":"message","id":"msg_a_1_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"4\u00e9","annotations":[],"logprobs":[]},{"type":"refusal","refusal":"No."}]},
{"type":"function_call","id":"fc_a_1_2","call_id":"c1","name":"add","arguments":"{\"a\":1.0}","status":"completed"},
{"type":"function_call","id":"fc_a_1_3","call_id":"c2","name":"spawn","namespace":"ns","arguments":"{"},
{"type":"custom_tool_call","id":"ctc_a_1_4","call_id":"c3","name":"patch","input":"x\ny"},
{"type":"function_call_output","call_id":"c1","output":"5"},{"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"6"}]},
{"type":"custom_tool_call_output","call_id":"c3","output":"7"},
{"role":"user","content":[{"type":"input_text","text":"So?"},{"type":"input_image","image_url":"data:image/png;base64,aaaa","detail":"auto"}]}]}`, `{"model":"m","input":"Hi"}`},
}

// TestTranslateRandomRequests changes valid requests at random, 100,000 times. It checks that each result
// is either refused or translated, and that the whole answer is equal to the answer from events.
func TestTranslateRandomRequests(t *testing.T) {
	t.Parallel()
	count := 100_000
	if testing.Short() {
		count = 10_000
	}
	for _, api := range apis {
		if api.dialect == nil {
			continue
		}
		t.Run(api.dialect.Name(), func(t *testing.T) {
			t.Parallel()
			m := newMutator(t, api.dialect)
			translated := 0
			for range count / (len(apis) - 1) {
				if checkRequest(t, api.dialect, m.request(), m) {
					translated++
				}
			}
			t.Logf("%d requests were translated, %d refused", translated, count/(len(apis)-1)-translated)
			if translated < count/20 || translated > count*9/20 {
				t.Errorf("%d of %d requests were translated: the changes are too small or too large", translated, count/2)
			}
		})
	}
}

// checkRequest checks that a request is refused with a reason, or becomes a chat completion. It returns
// true for a chat completion.
func checkRequest(t *testing.T, d translate.Dialect, body []byte, m *mutator) bool {
	t.Helper()
	call, err := d.Request(body)
	if err != nil {
		e, ok := errors.AsType[*translate.Error](err)
		if !ok || e.Status != http.StatusBadRequest || e.Message == "" || e.Code == "" || !utf8.ValidString(e.Message) || !json.Valid(d.Error(e)) {
			t.Fatalf("%s\nis refused with %#v", body, err)
		}
		return false
	}
	if !json.Valid(call.Chat) {
		t.Fatalf("%s\nbecomes no JSON: %s", body, call.Chat)
	}
	q, err := parseChat(tokenize.NewScanner(tokenize.DecoderConfig{}), call.Chat)
	if err != nil || q.streamed {
		t.Fatalf("%s\nbecomes\n%s\nstream %v: %v", body, call.Chat, q.streamed, err)
	}
	for _, message := range q.messages {
		var m struct {
			Role    string
			Content any
			ID      string `json:"tool_call_id"`
		}
		if err := json.Unmarshal(message, &m); err != nil || !slices.Contains([]string{"system", "user", "assistant", "tool"}, m.Role) || (m.Content == nil) && m.Role != "assistant" {
			t.Fatalf("%s\nhas the message %s: %v", body, message, err)
		}
	}
	if m.IntN(4) > 0 {
		return true
	}
	again, err := d.Request(body)
	if err != nil || !bytes.Equal(again.Chat, call.Chat) {
		t.Fatalf("%s\nbecomes %s\nand then %s, %v", body, call.Chat, again.Chat, err)
	}
	a := m.answer()
	whole := call.Reply.Whole(nil, a)
	var events []byte
	waits := m.IntN(2) == 0
	if waits {
		events = again.Reply.Waiting(events)
	}
	events = again.Reply.Events(events, a)
	got, want := accumulated(t, d, events), decoded(t, whole)
	if waits { // the events begin before the id of the answer is known
		for _, object := range []any{got, want} {
			delete(object.(map[string]any), "id")
			delete(object.(map[string]any), "created_at")
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v\nis as a whole\n%s\nand as events\n%s", a, whole, events)
	}
	return true
}

func decoded(t *testing.T, text []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%s\n%v", text, err)
	}
	return v
}

// accumulated returns the object that a client makes from the events.
func accumulated(t *testing.T, d translate.Dialect, events []byte) any {
	t.Helper()
	type fields = map[string]any
	var message, last fields
	var blocks, items []any
	var input string
	texts := map[float64]string{}
	for event := range strings.SplitSeq(strings.TrimSuffix(string(events), "\n\n"), "\n\n") {
		name, data, ok := strings.Cut(strings.TrimPrefix(event, "event: "), "\ndata: ")
		e, _ := decoded(t, []byte(data)).(fields)
		if !ok || strings.Contains(data, "\n") || e["type"] != name {
			t.Fatalf("the event is %q", event)
		}
		last = e
		delta, _ := e["delta"].(fields)
		index, _ := e["output_index"].(float64)
		switch name {
		case "message_start":
			message, _ = e["message"].(fields)
		case "content_block_start":
			blocks, input = append(blocks, e["content_block"]), ""
		case "content_block_delta":
			block, _ := blocks[len(blocks)-1].(fields)
			for _, member := range []string{"text", "thinking", "signature"} {
				if text, ok := delta[member].(string); ok {
					block[member] = fmt.Sprint(block[member], text)
				}
			}
			if part, ok := delta["partial_json"].(string); ok {
				input += part
				block["input"] = decoded(t, []byte(input))
			}
		case "message_delta":
			maps.Copy(message, delta)
			message["usage"], message["content"] = e["usage"], append([]any{}, blocks...)
		case "response.output_item.done":
			items = append(items, e["item"])
			item, _ := e["item"].(fields)
			if content, ok := item["content"].([]any); ok {
				item, _ = content[0].(fields)
			}
			if !slices.Contains([]any{item["text"], item["refusal"], item["arguments"], item["input"]}, any(texts[index])) {
				t.Fatalf("the item %v does not have the text of its deltas, %q", item, texts[index])
			}
		default:
			if text, ok := e["delta"].(string); ok && strings.HasSuffix(name, ".delta") {
				texts[index] += text
			}
		}
	}
	if d.Name() == "messages" {
		return message
	}
	whole, _ := last["response"].(fields)
	if !reflect.DeepEqual(whole["output"], append([]any{}, items...)) {
		t.Fatalf("the items are %v and then %v", items, whole["output"])
	}
	return whole
}

// A mutator makes requests and answers.
type mutator struct {
	*rand.Rand
	valid []string // requests
	names []string // of members and values
}

func newMutator(t *testing.T, d translate.Dialect) *mutator {
	t.Helper()
	m := &mutator{rand.New(rand.NewPCG(7, 7)), apiSeeds[d.Name()], []string{"", "ü", "type"}}
	for _, table := range d.Tables() {
		for _, r := range table.Rules {
			m.names = append(m.names, r.Member)
		}
	}
	for _, valid := range m.valid {
		if _, err := d.Request([]byte(valid)); err != nil {
			t.Fatalf("%s\nis refused: %v", valid, err)
		}
	}
	return m
}

// request returns a valid request with up to four changes, mostly in its JSON and sometimes in its bytes.
func (m *mutator) request() []byte {
	var v any
	if err := json.Unmarshal([]byte(m.valid[m.IntN(len(m.valid))]), &v); err != nil {
		panic(err)
	}
	for range m.IntN(4) {
		v = m.change(v)
	}
	body, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	for range max(0, m.IntN(12)-9) {
		at := m.IntN(len(body))
		switch m.IntN(3) {
		case 0:
			body[at] = byte(m.IntN(256))
		case 1:
			body = slices.Insert(body, at, []byte(`{}[]",:\u0`)[m.IntN(10)])
		default:
			body = body[:max(1, at)]
		}
	}
	return body
}

// change changes one value inside v.
func (m *mutator) change(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			break
		}
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		slices.Sort(names)
		name := names[m.IntN(len(names))]
		switch m.IntN(12) {
		case 0:
			delete(v, name)
		case 1:
			v[m.name()] = m.value()
		case 2:
			v[name] = m.value()
		default:
			v[name] = m.change(v[name])
		}
		return v
	case []any:
		if len(v) == 0 {
			break
		}
		i := m.IntN(len(v))
		switch m.IntN(12) {
		case 0:
			return slices.Delete(v, i, i+1)
		case 1:
			return slices.Insert(v, i, m.value())
		case 2:
			v[i], v[0] = v[0], v[i]
		default:
			v[i] = m.change(v[i])
		}
		return v
	}
	return m.value()
}

func (m *mutator) name() string { return m.names[m.IntN(len(m.names))] }

func (m *mutator) value() any {
	switch m.IntN(10) {
	case 0:
		return []any{nil, true, false, -1, 0, 1e99, 0.5, []any{}, map[string]any{}}[m.IntN(9)]
	case 1:
		return []any{m.value()}
	case 2:
		return map[string]any{m.name(): m.value(), "type": m.name()}
	case 3:
		return m.name()
	}
	return m.text()
}

func (m *mutator) text() string {
	var b strings.Builder
	for range m.IntN(8) {
		b.WriteString([]string{"a", "日本", "\x00", "\n", "\u2028", `"`, `\`, "</", "data: ", "\ufffd", "\U0001f600", "x-anthropic-billing-header:", "msg_a_1_1"}[m.IntN(13)])
	}
	return b.String()
}

// answer returns an answer of an engine.
func (m *mutator) answer() *translate.Answer {
	text := func(s string) json.RawMessage { return quoted(s) }
	maybe := func() json.RawMessage {
		if m.IntN(3) == 0 {
			return nil
		}
		return text(m.text())
	}
	a := &translate.Answer{
		ID: "0123456789abcdef_7", Model: m.text(), Created: 1, Reasoning: maybe(), Content: maybe(), Finish: []string{"stop", "length", "tool_calls", "", "abort", "content_filter"}[m.IntN(6)],
		PromptTokens: m.Int64N(10), OutputTokens: m.Int64N(10), Cached: m.Int64N(3),
	}
	if m.IntN(10) == 0 {
		a.Refusal, a.Matched = maybe(), maybe()
	}
	for range max(0, m.IntN(5)-2) {
		name := []string{"add", "now", "patch", "ns__spawn", "", m.text()}[m.IntN(6)]
		arguments := []string{`{"a": 1}`, `{}`, "", `{"input": "x\"\n"}`, `{"input":"x","b":1}`, `{"input":"x","b":null}`, `{"_arguments":"x"}`, "[]", `{"a":1,"a":2}`, m.text()}[m.IntN(10)]
		switch m.IntN(4) {
		case 0: // cut off
			arguments = arguments[:m.IntN(len(arguments)+1)]
		case 1: // with any bytes
			arguments = arguments[:m.IntN(len(arguments)+1)] + m.text() + arguments[m.IntN(len(arguments)+1):]
		}
		a.Calls = append(a.Calls, translate.ToolCall{ID: text(m.text()), Name: text(name), Arguments: text(arguments)})
	}
	return a
}
