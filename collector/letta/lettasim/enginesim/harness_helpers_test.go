package enginesim_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/collector/prompt/prompttest"
)

// The tools of three harnesses, shortened to what matters: names and schemas.
const (
	opencodeTools = `[{"type":"function","function":{"name":"read","parameters":{"type":"object","properties":{"filePath":{"type":"string"}},"required":["filePath"]}}},
{"type":"function","function":{"name":"bash","parameters":{"$schema":"x","type":"object","properties":{"command":{"type":"string"},"timeout":{"type":"number"},"description":{"type":"string"}},"required":["command","description"],"additionalProperties":false}}},
{"type":"function","function":{"name":"task","description":"Available agent types: general, explore","parameters":{"type":"object","properties":{"description":{"type":"string"},"prompt":{"type":"string"},"subagent_type":{"type":"string"}},"required":["description","prompt","subagent_type"]}}}]`
	qwenTools = `[{"type":"function","function":{"name":"write_file","parameters":{"type":"object","properties":{"file_path":{"type":"string"},"content":{"type":"string"}},"required":["file_path","content"]}}},
{"type":"function","function":{"name":"run_shell_command","parameters":{"type":"object","properties":{"command":{"type":"string"},"is_background":{"type":"boolean"},"timeout":{"type":["null","number"]}},"required":["command","is_background","timeout"]}}},
{"type":"function","function":{"name":"agent","parameters":{"type":"object","$defs":{"k":{"enum":["explore"]}},"properties":{"prompt":{"type":"string"},"description":{"type":"string","minLength":40},"kind":{"$ref":"#/$defs/k"},"mode":{"anyOf":[{"type":"null"},{"const":"fast"}]}},"required":["description","kind","mode"]}}}]`
	miniTools = `[{"type":"function","function":{"name":"bash","parameters":{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}}}]`
)

// A harness is a small agent harness: it runs the conversation of a task to its end.
type harness struct {
	s        *served
	tools    string
	stream   bool
	reasons  bool // put reasoning into the history
	dir      string
	env      []string // more variables of commands
	messages []json.RawMessage
	answers  []outcome
	statuses []int
	subs     []*harness
}

func newHarness(t *testing.T, s *served, tools, task string, stream bool) *harness {
	t.Helper()
	h := &harness{s: s, tools: tools, stream: stream, reasons: true, dir: t.TempDir()}
	h.say(map[string]any{"role": "system", "content": "You are an agent."})
	h.say(map[string]any{"role": "user", "content": "\"Write notes. " + task + "\""})
	return h
}

func (h *harness) say(message map[string]any) {
	b, _ := json.Marshal(message)
	h.messages = append(h.messages, b)
}

func (h *harness) body(tools string) string {
	m, _ := json.Marshal(h.messages)
	body := `{"model":"/models/qwen3","messages":` + string(m) + `,"logprobs":true`
	if tools != "" {
		body += `,"tools":` + tools
	}
	if h.stream {
		body += `,"stream":true,"stream_options":{"include_usage":true}`
	}
	return body + `}`
}

// run makes calls until an answer has no tool call. An answer that did not arrive is asked for again.
func (h *harness) run(t *testing.T) {
	t.Helper()
	for range 20 {
		status, raw := h.s.ask(t, h.body(h.tools))
		h.statuses = append(h.statuses, status)
		if status == http.StatusBadRequest { // compact the history, as harnesses do
			h.compact(t, string(raw))
			continue
		}
		if status != http.StatusOK || h.stream && !bytes.HasSuffix(raw, []byte("data: [DONE]\n\n")) || !h.stream && !json.Valid(raw) {
			continue
		}
		var o outcome
		if !h.stream {
			o.add(t, decode[completion](t, raw))
		} else {
			for part := range bytes.SplitSeq(bytes.TrimSuffix(raw, []byte("data: [DONE]\n\n")), []byte("\n\n")) {
				if len(part) > 0 {
					o.add(t, decode[completion](t, bytes.TrimPrefix(part, []byte("data: "))))
				}
			}
		}
		h.answers = append(h.answers, o)
		if o.finish == "length" {
			h.say(map[string]any{"role": "assistant", "content": o.content})
			h.say(map[string]any{"role": "user", "content": "Go on."})
			continue
		}
		message := map[string]any{"role": "assistant", "content": o.content}
		if o.reasoning != "" && h.reasons {
			message["reasoning_content"] = o.reasoning
		}
		var calls []any
		for _, call := range o.calls {
			part := strings.SplitN(call, " ", 3)
			calls = append(calls, map[string]any{"id": part[0], "type": "function", "function": map[string]any{"name": part[1], "arguments": part[2]}})
		}
		if calls == nil {
			h.say(message)
			return
		}
		message["tool_calls"] = calls
		h.say(message)
		for _, call := range o.calls {
			part := strings.SplitN(call, " ", 3)
			h.say(map[string]any{"role": "tool", "tool_call_id": part[0], "content": h.use(t, part[1], part[2])})
		}
	}
	t.Errorf("the conversation does not end: %+v", h.answers)
}

// use calls a tool, after a check of its arguments.
func (h *harness) use(t *testing.T, name, arguments string) string {
	t.Helper()
	var args map[string]any
	if err := json.Unmarshal([]byte(arguments), &args); err != nil {
		t.Errorf("%s(%s): %v", name, arguments, err)
	}
	h.check(t, name, args)
	switch name {
	case "bash", "run_shell_command", "exec_command":
		line, _ := cmp.Or(args["command"], args["cmd"]).(string)
		cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
		cmd.Dir, cmd.Env = h.dir, append(os.Environ(), h.env...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v: %s", args["command"], err, out)
		}
		return string(out)
	case "multi_agent_v1__spawn_agent":
		sub := newHarness(t, h.s, h.tools, args["message"].(string), h.stream)
		sub.run(t)
		h.subs = append(h.subs, sub)
		return `{"agent_id": "01a2-b"}`
	case "multi_agent_v1__wait_agent":
		if got := fmt.Sprint(args["targets"]); got != "[01a2-b]" {
			t.Errorf("waits for %s", got)
		}
		return h.subs[0].answers[len(h.subs[0].answers)-1].content
	case "task", "agent":
		sub := newHarness(t, h.s, h.tools, args["prompt"].(string), h.stream)
		sub.run(t)
		h.subs = append(h.subs, sub)
		return "The agent for " + args["prompt"].(string) + " says: " + sub.answers[len(sub.answers)-1].content
	}
	t.Errorf("the tool %s was called", name)
	return ""
}

// check compares arguments with the schema, as far as the schemas above go.
func (h *harness) check(t *testing.T, name string, args map[string]any) {
	t.Helper()
	for _, tool := range decode[[]struct {
		Function struct {
			Name       string
			Parameters struct {
				Required   []string
				Properties map[string]struct {
					Type      any
					MinLength int
				}
			}
		}
	}](t, []byte(h.tools)) {
		p := tool.Function.Parameters
		if tool.Function.Name != name {
			continue
		}
		for _, required := range p.Required {
			if _, ok := args[required]; !ok {
				t.Errorf("%s lacks %s: %v", name, required, args)
			}
		}
		for key, value := range args {
			want, known := p.Properties[key]
			got := map[bool]string{true: "boolean"}[value == true || value == false]
			switch v := value.(type) {
			case string:
				got = "string"
				if len(v) < want.MinLength {
					t.Errorf("%s: %s is too short: %q", name, key, v)
				}
			case float64:
				got = "number"
			case []any:
				got = "array"
			}
			if !known || want.Type != nil && !strings.Contains(fmt.Sprint(want.Type), got) {
				t.Errorf("%s: %s is %v, want %v", name, key, value, want.Type)
			}
		}
		return
	}
	t.Errorf("there is no tool %s", name)
}

// compact asks for a summary without tools. The summary then replaces the history.
func (h *harness) compact(t *testing.T, refusal string) {
	t.Helper()
	if !strings.Contains(refusal, "context length") {
		t.Errorf("refused: %s", refusal)
	}
	stream := h.stream
	h.stream = false
	defer func() { h.stream = stream }()
	history, _ := json.Marshal(h.messages)
	system := h.messages[0]
	h.messages = nil
	h.say(map[string]any{"role": "system", "content": "You are a context summarization assistant."})
	h.say(map[string]any{"role": "user", "content": string(history)})
	status, raw := h.s.ask(t, h.body(""))
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, raw)
	}
	var o outcome
	o.add(t, decode[completion](t, raw))
	h.messages = []json.RawMessage{system}
	h.say(map[string]any{"role": "user", "content": "So far: " + o.content})
}

var smallModel = sync.OnceValues(func() (m prompttest.Model, err error) {
	m.Tokenizer, m.Template, err = enginesim.SmallModel()
	return m, err
})

// small starts an engine with the built-in model.
func small(t *testing.T, cfg enginesim.Config) *served {
	t.Helper()
	m, err := smallModel()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Tokenizer, cfg.Template = m.Tokenizer, m.Template
	cfg.MaxModelLen = 100_000
	s := &served{model: m}
	s.start(t, cfg)
	return s
}
