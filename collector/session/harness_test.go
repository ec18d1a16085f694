package session_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/tokenize"
)

// The ids of the toy tokenizer. A byte is its own id.
const (
	idSystem = 300 + iota
	idUser
	idAssistant
	idTool
	idEnd
	idCall
	idThink
	idTools
)

// A harness writes the record of a session as if it sent requests to an engine.
type harness struct {
	record session.Record
	texts  map[string]int
	now    time.Time
}

func newHarness(task string) *harness {
	h := &harness{texts: map[string]int{}, now: time.Unix(1_700_000_000, 0).UTC()}
	h.record.ID = "s"
	h.record.Head = session.Head{Began: h.now, Task: &session.Task{Prompt: task}}
	return h
}

func (h *harness) text(raw string) int {
	i, ok := h.texts[raw]
	if !ok {
		i = len(h.record.Texts)
		h.texts[raw] = i
		h.record.Texts = append(h.record.Texts, json.RawMessage(raw))
	}
	return i
}

type toolCall struct{ id, name, args string }

// A msg is a message. Its content is a string, null or a list of parts.
type msg struct {
	role, text, reasoning string
	null, parts           bool
	calls                 []toolCall
	of                    string // tool_call_id
}

func (m *msg) json() string {
	content := any(m.text)
	if m.null {
		content = nil
	}
	if m.parts {
		content = []any{map[string]any{"type": "text", "text": m.text}}
	}
	out := map[string]any{"role": m.role, "content": content}
	if m.reasoning != "" {
		out["reasoning_content"] = m.reasoning
	}
	if m.of != "" {
		out["tool_call_id"] = m.of
	}
	var calls []any
	for _, c := range m.calls {
		calls = append(calls, map[string]any{"id": c.id, "type": "function", "function": map[string]any{"name": c.name, "arguments": c.args}})
	}
	if calls != nil {
		out["tool_calls"] = calls
	}
	b, err := json.Marshal(out)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func ids(text string) (out []int32) {
	for _, b := range []byte(text) {
		out = append(out, int32(b))
	}
	return out
}

// body renders a message without the id of its role. The body of an answer is the engine's output.
func (m *msg) body() (out []int32) {
	if m.reasoning != "" {
		out = append(append(out, idThink), ids(m.reasoning)...)
	}
	out = append(out, ids(m.text)...)
	for _, c := range m.calls {
		out = append(append(append(out, idCall), ids(c.name)...), ids(c.args)...)
	}
	return append(out, idEnd)
}

var roleIDs = map[string]int32{"system": idSystem, "user": idUser, "assistant": idAssistant, "tool": idTool}

// A conv is a conversation of the harness: what it would send next.
type conv struct {
	h    *harness
	tool []string
	msgs []msg
}

func (h *harness) conv(tools string, msgs ...msg) *conv {
	return &conv{h, strings.Fields(tools), msgs}
}

func system(text string) msg     { return msg{role: "system", text: text} }
func user(text string) msg       { return msg{role: "user", text: text} }
func result(of, text string) msg { return msg{role: "tool", text: text, of: of} }
func says(text string) msg       { return msg{role: "assistant", text: text} }
func thinks(r string, m msg) msg { m.reasoning = r; return m }
func does(id, name, args string) msg {
	return msg{role: "assistant", null: true, calls: []toolCall{{id, name, args}}}
}

func (c *conv) clone(more ...msg) *conv {
	return &conv{c.h, c.tool, append(slices.Clone(c.msgs), more...)}
}

func (c *conv) add(m ...msg) *conv { c.msgs = append(c.msgs, m...); return c }

// begin sends the request. The answer comes with end.
func (c *conv) begin() *pending {
	h := c.h
	h.now = h.now.Add(time.Second)
	call := session.Call{
		Number: len(h.record.Calls) + 1, Tools: -1, Retry: -1,
		Call: tap.Call{Began: h.now, Status: 200, Matched: -1, PromptTokens: -1, OutputTokens: -1, Cached: -1},
	}
	var prompt []int32
	if len(c.tool) > 0 {
		var list []any
		for _, name := range c.tool {
			list = append(list, map[string]any{"type": "function", "function": map[string]any{"name": name}})
		}
		b, err := json.Marshal(list)
		if err != nil {
			panic(err)
		}
		call.Tools = h.text(string(b))
		prompt = append(append(prompt, idTools), ids(string(b))...)
	}
	for i := range c.msgs {
		call.Messages = append(call.Messages, h.text(c.msgs[i].json()))
		prompt = append(append(prompt, roleIDs[c.msgs[i].role]), c.msgs[i].body()...)
	}
	call.Prompt = append(prompt, idAssistant)
	h.record.Calls = append(h.record.Calls, call)
	return &pending{h, len(h.record.Calls) - 1}
}

// A pending request has no answer yet.
type pending struct {
	h *harness
	i int
}

// A change is a fault or another difference from a complete answer.
type change func(*session.Call)

func (p *pending) end(answer msg, changes ...change) {
	c := &p.h.record.Calls[p.i]
	p.h.now = p.h.now.Add(time.Second)
	c.Ended = p.h.now
	c.Output = answer.body()
	c.Logprobs = make([]float32, len(c.Output))
	for i := range c.Logprobs {
		c.Logprobs[i] = -0.5
	}
	c.Finish, c.Delivered = tokenize.FinishStop, true
	if len(answer.calls) > 0 {
		c.Finish = "tool_calls"
	}
	c.Answer = json.RawMessage(answer.json())
	c.PromptTokens, c.OutputTokens = int32(len(c.Prompt)), int32(len(c.Output))
	for _, f := range changes {
		f(c)
	}
}

func (c *conv) call(answer msg, changes ...change) { c.begin().end(answer, changes...) }

// turn calls the model and adds the answer and more messages to the history.
func (c *conv) turn(answer msg, more ...msg) *conv {
	c.call(answer)
	return c.add(answer).add(more...)
}

// cut breaks the answer off after n tokens. Only the given part of the message has arrived.
func cut(n int, part msg) change {
	return func(c *session.Call) {
		c.Cut, c.Delivered, c.Finish, c.OutputTokens, c.PromptTokens = true, false, "", -1, -1
		c.Output, c.Logprobs = c.Output[:n:n], c.Logprobs[:n:n]
		c.Answer = json.RawMessage(part.json())
	}
}

func failed(c *session.Call) {
	c.Status, c.Delivered, c.Output, c.Logprobs, c.Answer, c.Finish = 500, false, nil, nil, nil, ""
}

func otherPrompt(c *session.Call) { c.Prompt = append([]int32{idThink}, c.Prompt...); c.PromptTokens++ }
func undelivered(c *session.Call) { c.Delivered = false }
func stopped(c *session.Call)     { c.Finish = tokenize.FinishLength }
func noIDs(c *session.Call)       { c.Unread, c.Output, c.Logprobs = "no_ids", nil, nil }
func retry(n int) change          { return func(c *session.Call) { c.Retry = n } }

// summary describes a rollout: one word per call, in the order of the requests.
func summary(out *session.Rollout) string {
	words := make([]string, len(out.Calls))
	order := make([]int, len(out.Calls))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(x, y int) int { return out.Number[x] - out.Number[y] })
	for k, i := range order {
		c := &out.Calls[i]
		words[k] = fmt.Sprintf("%d:%s%d", out.Number[i], c.ChainKind, c.Chain)
		if c.Reason != tokenize.ReasonNone {
			words[k] += "!" + c.Reason.String()
		}
	}
	return strings.Join(words, " ")
}
