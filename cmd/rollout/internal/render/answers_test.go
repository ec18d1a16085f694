package render_test

import (
	"encoding/json"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/render"
	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/tap/proxy"
)

type message struct {
	Role      string  `json:"role"`
	Content   *string `json:"content"`
	Reasoning string  `json:"reasoning_content,omitempty"`
	Thoughts  string  `json:"reasoning,omitempty"` // vLLM's name
	Calls     []struct {
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls,omitempty"`
	CallID string `json:"tool_call_id,omitempty"`
}

// TestAnswers checks that a client gets the same messages with and without rendered prompts, and
// that the same ids, log-probabilities and finish reasons are recorded.
func TestAnswers(t *testing.T) {
	t.Parallel()
	m := small(t)
	for _, dialect := range []enginesim.Dialect{enginesim.DialectVLLM, enginesim.DialectSGLangPlain} {
		engine := engineOf(t, m, dialect, "")
		ours, theirs := newRig(t, engine, proxy.Config{Renderer: render.New(m)}), newRig(t, engine, proxy.Config{})
		for _, script := range []string{
			"single", "think", "tool", "two", "many", "parallel", "think-tool", "think-parallel", "text-tool", "compact", "spaced", "numbers", "order",
			"escaped", "unicode", "braces", "quoted", "fail", "chars", "split", "length", "newlines", "spaces", "steps", "sixteen", "large", "versions", "null",
		} {
			a, b := converse(t, ours, script), converse(t, theirs, script)
			if len(a) != len(b) {
				t.Errorf("%v %s: %d calls, with rendered prompts %d", dialect, script, len(b), len(a))
				continue
			}
			for i := range a {
				same(t, dialect.String()+" "+script, &a[i], &b[i])
			}
		}
	}
}

// converse makes a conversation of up to six calls and returns the recorded calls.
func converse(t *testing.T, r *rig, script string) []session.Call {
	t.Helper()
	r.begin(t)
	empty := "Go on."
	user := "Do it. [script:" + script + "]"
	messages := []message{{Role: "user", Content: &user}}
	for range 6 {
		status, text := r.call(t, `{"tools":`+encode(t, []any{tool("add", nil)})+`,"max_completion_tokens":3000,"messages":`+encode(t, messages)+`}`)
		var answer struct {
			Choices []struct {
				Message message `json:"message"`
				Finish  string  `json:"finish_reason"`
			}
		}
		if err := json.Unmarshal([]byte(text), &answer); err != nil || status != http.StatusOK || len(answer.Choices) != 1 {
			t.Fatalf("%s: %d %s", script, status, text)
		}
		said := answer.Choices[0].Message
		if want := len(said.Calls) > 0 && answer.Choices[0].Finish != "length"; want != (answer.Choices[0].Finish == "tool_calls") {
			t.Errorf("%s: %d calls and finish reason %q", script, len(said.Calls), answer.Choices[0].Finish)
		}
		messages = append(messages, said)
		for _, c := range said.Calls {
			messages = append(messages, message{Role: "tool", Content: &c.Function.Arguments, CallID: c.ID})
		}
		if len(said.Calls) == 0 {
			messages = append(messages, message{Role: "user", Content: &empty})
			if len(messages) > 3 {
				break
			}
		}
	}
	return r.end(t)
}

// same compares two recorded calls. Engines can format the same message differently.
func same(t *testing.T, name string, a, b *session.Call) {
	t.Helper()
	var x, y map[string]any
	for _, p := range []struct {
		text []byte
		to   *map[string]any
	}{{a.Answer, &x}, {b.Answer, &y}} {
		if err := json.Unmarshal(p.text, p.to); err != nil {
			t.Fatalf("%s: %v: %s", name, err, p.text)
		}
		for key, value := range *p.to {
			if text, ok := value.(string); ok {
				(*p.to)[key] = strings.TrimSpace(text) // vLLM keeps white space, and SGLang does not
			}
			if value == nil || value == "" {
				delete(*p.to, key)
			}
			calls, _ := value.([]any)
			for _, c := range calls {
				if call, ok := c.(map[string]any); ok {
					delete(call, "id")
					delete(call, "index")
				}
			}
		}
	}
	if !reflect.DeepEqual(x, y) {
		t.Errorf("%s: the answer is\n%s, from the engine\n%s", name, a.Answer, b.Answer)
	}
	equal := func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) || x != x && y != y }
	if !slices.Equal(a.Prompt, b.Prompt) || !slices.Equal(a.Output, b.Output) || !slices.EqualFunc(a.Logprobs, b.Logprobs, equal) {
		t.Errorf("%s: the ids or the log-probabilities differ: %v %v, %v %v", name, a.Output, a.Logprobs, b.Output, b.Logprobs)
	}
	if a.Unread != b.Unread || a.Version != b.Version || a.PromptTokens != b.PromptTokens || a.OutputTokens != b.OutputTokens || a.Tools != b.Tools || a.Status != b.Status {
		t.Errorf("%s: recorded %+v, from the engine %+v", name, a, b)
	}
	if a.Finish != b.Finish && (a.Finish != "length" || b.Finish != "tool_calls") { // vLLM hides the limit behind the calls
		t.Errorf("%s: finish reason %q, from the engine %q", name, a.Finish, b.Finish)
	}
}

// TestCountTokens checks that the token count of Anthropic's API is the number of ids in the prompt of the
// same call.
func TestCountTokens(t *testing.T) {
	t.Parallel()
	m := small(t)
	engine := engineOf(t, m, enginesim.DialectSGLangPlain, "")
	r := newRig(t, engine, proxy.Config{Renderer: render.New(m)})
	const body = `{"model":"x","system":"Be brief.","messages":[{"role":"user","content":"Hello. 日本語"}],"tools":[{"name":"add","input_schema":{"type":"object"}}]`
	status, text := r.callAt(t, "/v1/messages/count_tokens", body+"}")
	var counted struct {
		Tokens int `json:"input_tokens"`
	}
	if err := json.Unmarshal([]byte(text), &counted); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	for _, wrong := range []string{"{}", "[", `{"model":"x","messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"http://localhost"}}]}]}`} {
		if status, text := r.callAt(t, "/v1/messages/count_tokens", wrong); status != http.StatusBadRequest || !strings.Contains(text, `"type":"error"`) {
			t.Errorf("%s: %d %s", wrong, status, text)
		}
	}
	if status, text := r.callAt(t, "/v1/messages", body+`,"max_tokens":9}`); status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	calls := r.end(t)
	if len(calls) != 1 || len(calls[0].Prompt) != counted.Tokens || counted.Tokens == 0 {
		t.Errorf("%d tokens were counted; recorded %+v", counted.Tokens, calls)
	}
	without := newRig(t, engine, proxy.Config{})
	if status, text := without.callAt(t, "/v1/messages/count_tokens", body+"}"); status != http.StatusNotFound || !strings.Contains(text, "--render") {
		t.Errorf("without a renderer: %d %s", status, text)
	}
}

// TestStream checks that a client that requests a stream gets the message as a stream.
func TestStream(t *testing.T) {
	t.Parallel()
	m := small(t)
	r := newRig(t, engineOf(t, m, enginesim.DialectSGLangPlain, ""), proxy.Config{Renderer: render.New(m)})
	status, text := r.call(t, `{"stream":true,"tools":`+encode(t, []any{tool("add", nil)})+`,"messages":[{"role":"user","content":"[script:think-tool]"}]}`)
	var content, reasoning, arguments, finish string
	for event := range strings.SplitSeq(text, "\n\n") {
		data, ok := strings.CutPrefix(event, "data: {")
		if !ok {
			continue
		}
		var d struct {
			Choices []struct {
				Delta  message
				Finish string `json:"finish_reason"`
			}
		}
		if err := json.Unmarshal([]byte("{"+data), &d); err != nil {
			t.Fatal(err)
		}
		for _, c := range d.Choices {
			if c.Delta.Content != nil {
				content += *c.Delta.Content
			}
			reasoning += c.Delta.Reasoning
			finish += c.Finish
			for _, call := range c.Delta.Calls {
				arguments += call.Function.Arguments
			}
		}
	}
	if status != http.StatusOK || content != "" || !strings.HasPrefix(reasoning, "I have to add, ") || arguments != `{"a": 2, "b": 3}` || finish != "tool_calls" || !strings.HasSuffix(text, "data: [DONE]\n\n") {
		t.Errorf("%d content %q, reasoning %q, arguments %q, finish %q: %s", status, content, reasoning, arguments, finish, text)
	}
	if c := r.end(t)[0]; c.Unread != "" || len(c.Output) == 0 || !c.Delivered {
		t.Errorf("%+v", c)
	}
}
