package render

import (
	"encoding/json"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/decode"
	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/collector/tap/proxy"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// TestReasoning checks which member of a message becomes the reasoning.
func TestReasoning(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ message, want string }{
		{`{"reasoning":"abc"}`, "abc"},
		{`{"reasoning_content":"abc"}`, "abc"},
		{`{"reasoning_content":"abc","reasoning":"other"}`, "abc"},
		{`{"reasoning":"other","reasoning_content":"abc"}`, "abc"},
		{`{"reasoning_content":null,"reasoning":"abc"}`, "abc"},
		{`{"reasoning":"abc","reasoning_content":null}`, "abc"},
		{`{"reasoning_content":"","reasoning":"abc"}`, "abc"},
		{`{"reasoning":"abc","reasoning_content":""}`, "abc"},
		{`{"reasoning_content":"abc","reasoning":null}`, "abc"},
		{`{"reasoning_content":"abc","reasoning":""}`, "abc"},
		{`{"reasoning":null,"reasoning_content":null}`, ""},
	} {
		m, err := messageOf(json.RawMessage(c.message), "\n")
		if err != nil {
			t.Fatal(err)
		}
		v, _ := m.Map().Get("reasoning_content")
		if got, _ := v.Text(); got != c.want || c.want == "" && v.Kind() != chat.Undefined {
			t.Errorf("%s: the reasoning is %q, want %q", c.message, got, c.want)
		}
		if _, ok := m.Map().Get("reasoning"); ok {
			t.Errorf("%s: the template gets both members", c.message)
		}
	}
}

// TestTextParameters checks that an unusual schema affects only its own parameters.
func TestTextParameters(t *testing.T) {
	t.Parallel()
	for _, tools := range []string{
		`[{"function":{"name":"f","parameters":{"properties":{"x":true,"text":{"type":"string"}}}}}]`,
		`[{"function":{"name":"f","parameters":{"properties":{"text":{"type":"string"},"x":false}}}}]`,
		`[5,null,"a",{"function":true},{"function":{"name":5}},{"function":{"parameters":{"properties":[]}}},{"function":{"name":"f","parameters":{"properties":{"text":{"type": "string" }}}}}]`,
	} {
		isText := textParameters(json.RawMessage(tools))
		if !isText("f", "text") || isText("f", "x") || isText("g", "text") {
			t.Errorf("%s: the parameter text of f must be the only text", tools)
		}
	}
}

// TestOtherModels checks that an answer can quote the marks of other models.
func TestOtherModels(t *testing.T) {
	t.Parallel()
	tok, template, err := enginesim.SmallModel()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"Write <function=bash><parameter=command>ls</parameter></function>.", "End it with [/THINK] then go."} {
		ids, err := tok.AppendTokens(nil, text)
		if err != nil {
			t.Fatal(err)
		}
		message, calls := New(&prompt.Model{Tokenizer: tok, Template: template}).Parse(&proxy.Output{IDs: ids, Tools: json.RawMessage(`[]`)})
		var m struct{ Content string }
		if err := json.Unmarshal(message, &m); err != nil || calls || m.Content != text {
			t.Errorf("%q became %s", text, message)
		}
	}
}

// TestSingle checks that a client that wants no parallel calls gets one call.
func TestSingle(t *testing.T) {
	t.Parallel()
	tok, template, err := enginesim.SmallModel()
	if err != nil {
		t.Fatal(err)
	}
	ids, err := tok.AppendTokens(nil, `<tool_call>{"name":"f","arguments":{}}</tool_call><tool_call>{"name":"g","arguments":{}}</tool_call>`)
	if err != nil {
		t.Fatal(err)
	}
	r := New(&prompt.Model{Tokenizer: tok, Template: template})
	for single, want := range map[bool]int{false: 2, true: 1} {
		message, calls := r.Parse(&proxy.Output{IDs: ids, Tools: json.RawMessage(`[]`), Single: single})
		var m struct {
			Calls []decode.Call `json:"tool_calls"`
		}
		if err := json.Unmarshal(message, &m); err != nil || !calls || len(m.Calls) != want {
			t.Errorf("single %v: %s", single, message)
		}
	}
}
