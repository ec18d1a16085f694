package lettasim

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/collector/letta/lettasim/internal/sglang"
	"github.com/rollout-rl/rollout/tokenize"
)

// A mangle is a data fault and its position in a script. The zero value means that there is no
// fault.
type mangle struct {
	kind FaultKind
	call int
	at   int // index of a token in that call
}

func (m mangle) hits(kind FaultKind, call int) bool { return m.kind == kind && m.call == call }

func newMangle(kind FaultKind, sc *script, r *rng) mangle {
	m := mangle{kind: kind, call: r.n(len(sc.calls))}
	if kind == MissingTool && len(sc.calls) > 1 {
		m.call = r.n(len(sc.calls) - 1)
	}
	m.at = r.n(len(sc.calls[m.call].output))
	return m
}

// appendTail appends the part of an answer that depends only on the script: logprobs and turns.
func (sc *script) appendTail(dst []byte, inputIDs, tokens bool, m mangle) []byte {
	if !tokens || m.kind == NoTurns || len(sc.calls) == 0 {
		return append(dst, `"logprobs":null,"turns":null}`...)
	}
	last := len(sc.calls) - 1
	dst = append(dst, `"logprobs":{"content":[`...)
	for i, id := range sc.calls[last].output {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"token":"`...)
		dst = strconv.AppendInt(dst, int64(id), 10)
		dst = append(dst, `","bytes":null,"logprob":`...)
		dst = appendFloat(dst, sc.calls[last].logprobs[i], answerFrom)
		dst = append(dst, `,"top_logprobs":[]}`...)
	}
	dst = append(dst, `],"refusal":null},"turns":[`...)
	begun := false
	next := func() {
		if begun {
			dst = append(dst, ',')
		}
		begun = true
	}
	for k := range sc.calls {
		c := &sc.calls[k]
		if !m.hits(EmptyTurn, k) && len(c.output) > 0 {
			next()
			dst = c.appendTurn(dst, k, inputIDs, m)
		}
		if c.use != nil && !m.hits(MissingTool, k) {
			next()
			dst = quote(append(dst, `{"role":"tool","output_ids":null,"output_token_logprobs":null,"content":`...), c.use.packaged)
			dst = append(quote(append(dst, `,"tool_name":`...), c.use.name), '}')
		}
	}
	return append(dst, `]}`...)
}

func (c *call) appendTurn(dst []byte, k int, inputIDs bool, m mangle) []byte {
	dst = c.appendOutput(append(dst, `{"role":"assistant","output_ids":`...), k, m)
	dst = c.appendLogprobs(append(dst, `,"output_token_logprobs":`...), k, m, answerFrom)
	dst = append(dst, `,"content":`...)
	if text := strings.TrimSpace(c.text); text == "" {
		dst = append(dst, "null"...)
	} else {
		dst = quote(dst, text)
	}
	dst = append(dst, `,"tool_name":null`...)
	if inputIDs {
		dst = tokenize.AppendIDs(append(dst, `,"input_ids":`...), c.prompt)
	}
	return append(dst, '}')
}

func (c *call) appendOutput(dst []byte, k int, m mangle) []byte {
	if c.answer != nil {
		return append(dst, c.answer.OutputIDs...)
	}
	dst = append(dst, '[')
	for i, id := range c.output {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, m.id(WideID, k, i, id), 10)
	}
	return append(dst, ']')
}

// Answers print a number with an exponent if its absolute value is below answerFrom. In traces, the
// limit is traceFrom.
const (
	answerFrom = 1e-5
	traceFrom  = 1e-4
)

func appendFloat(dst []byte, f float32, plainFrom float64) []byte {
	return sglang.AppendFloat(dst, f, plainFrom, "null")
}

// appendLogprobs appends the log-probability triples of call k.
func (c *call) appendLogprobs(dst []byte, k int, m mangle, plainFrom float64) []byte {
	if c.answer != nil {
		return append(dst, c.answer.Meta.Logprobs...)
	}
	if m.hits(NullLogprobs, k) {
		return append(dst, "null"...)
	}
	dst = append(dst, '[')
	n := len(c.output)
	if m.hits(ShortLogprobs, k) {
		n--
	}
	for i, id := range c.output[:n] {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '[')
		if m.hits(NaNLogprob, k) && m.at == i {
			dst = append(dst, "null"...)
		} else {
			dst = appendFloat(dst, c.logprobs[i], plainFrom)
		}
		dst = append(dst, ',')
		wide := m.id(WideID, k, i, id)
		dst = strconv.AppendInt(dst, m.id(IDMismatch, k, i, 0)+wide, 10)
		dst = append(dst, ",null]"...)
	}
	if m.hits(SurplusLogprobs, k) {
		dst = append(dst, `,[-0.5,11,null],[-0.25,13,null]`...)
	}
	return append(dst, ']')
}

// The method id returns the id to print. The result is wrong if the fault m hits this position.
func (m mangle) id(kind FaultKind, call, at int, id int32) int64 {
	if !m.hits(kind, call) || m.at != at {
		return int64(id)
	}
	if kind == WideID {
		return int64(id) + 1<<33
	}
	return int64(id) + 1
}

// The method counts returns the total numbers of prompt and output tokens in the calls. The result
// context is the number of prompt and output tokens in the last call.
func (sc *script) counts() (prompt, completion, context int) {
	for i := range sc.calls {
		c := &sc.calls[i]
		prompt += len(c.prompt)
		completion += len(c.output)
		context = len(c.prompt) + len(c.output)
	}
	return prompt, completion, context
}

// scriptDate is the time in all scripted messages, because a reply must not depend on the clock.
const scriptDate = "2026-01-05T10:00:00+00:00"

// appendHead appends the part of an answer that depends on the run: messages, stop reason and
// usage.
func (r *scriptedRun) appendHead(dst []byte) []byte {
	dst = append(dst, `{"messages":`...)
	dst = append(dst, array(r.list(false))...)
	dst = append(dst, `,"stop_reason":{"message_type":"stop_reason","stop_reason":"`...)
	dst = append(dst, r.script.stop...)
	prompt, completion, context := r.script.counts()
	return fmt.Appendf(dst, `"},"usage":{"message_type":"usage_statistics","completion_tokens":%d,"prompt_tokens":%d,"total_tokens":%d,"step_count":%d,"run_ids":null,`+
		`"cached_input_tokens":null,"cache_write_tokens":null,"reasoning_tokens":null,"context_tokens":%d},`, completion, prompt, prompt+completion, len(r.script.calls), context)
}

// list returns the run's stored messages if stored is true. Otherwise, it returns the messages in
// the answer. The answer omits user messages and, by default, text before a tool call.
func (r *scriptedRun) list(stored bool) [][]byte {
	var out [][]byte
	n := 0
	id := func() string { n++; return "message-" + draw(r.seed, "message", r.id, strconv.Itoa(n)).uuid() }
	if stored {
		for _, text := range r.script.user {
			m := r.message(id(), "user_message", 0, "")
			out = append(out, append(quote(append(m, `,"content":`...), text), '}'))
		}
	} else {
		n = len(r.script.user)
	}
	for k := range r.script.calls {
		c := &r.script.calls[k]
		if c.use == nil && len(c.output) == 0 {
			continue // the server does not store an empty output
		}
		if c.use == nil {
			m := r.message(id(), "assistant_message", k, "")
			out = append(out, append(quote(append(m, `,"content":`...), strings.TrimSpace(c.text)), '}'))
			continue
		}
		own := id()                                                                                                 // one stored message contains both the text and the tool call
		if text := strings.TrimSpace(c.text); text != "" && (stored || r.keepsText || k == len(r.script.calls)-1) { // the answer omits text that later steps remove from the history
			m := r.message(own, "assistant_message", k, "")
			out = append(out, append(quote(append(m, `,"content":`...), text), '}'))
		}
		one := quote([]byte(`{"name":`), c.use.name)
		one = quote(append(one, `,"arguments":`...), c.use.args)
		one = append(quote(append(one, `,"tool_call_id":`...), c.use.id), '}')
		m := r.message(own, "tool_call_message", k, "")
		m = append(append(m, `,"tool_call":`...), one...)
		out = append(out, append(append(append(m, `,"tool_calls":[`...), one...), "]}"...))

		result := quote([]byte(`"tool_return":`), c.use.result)
		result = quote(append(result, `,"status":"success","tool_call_id":`...), c.use.id)
		result = append(result, `,"stdout":[],"stderr":[]`...)
		m = r.message(id(), "tool_return_message", k, c.use.name)
		m = append(append(append(m, ','), result...), `,"tool_returns":[{"type":"tool",`...)
		out = append(out, append(append(m, result...), "}]}"...))
	}
	return out
}

// message returns the JSON object of a message in call k, without its last members. The caller must
// append these members and close the object.
func (r *scriptedRun) message(id, kind string, k int, name string) []byte {
	out := append([]byte(`{"id":"`+id+`","date":"`+scriptDate+`","name":`), "null"...)
	if name != "" {
		out = quote(out[:len(out)-len("null")], name)
	}
	return append(out, `,"message_type":"`+kind+`","otid":"`+id[len("message-"):]+`","sender_id":null,"step_id":"`+r.stepIDs[k]+`","is_err":null,"seq_id":null,"run_id":"`+r.id+`"`...)
}

// newObject returns an object. The arguments alternate between names and values. A value is a
// string, an int, nil, or JSON as a []byte.
func newObject(members ...any) *object {
	o := &object{values: map[string][]byte{}}
	for i := 0; i+1 < len(members); i += 2 {
		key, _ := members[i].(string)
		switch v := members[i+1].(type) {
		case string:
			o.text(key, v)
		case int:
			o.set(key, strconv.AppendInt(nil, int64(v), 10))
		case []byte:
			o.set(key, v)
		default:
			o.set(key, []byte("null"))
		}
	}
	return o
}

// A runHead contains the values that appear in the states of both a run and its steps.
type runHead struct {
	id, agent, handle string
	began, ended      time.Time
}

// runState returns the JSON of a finished run. If stop is empty, the stop reason is null.
func (r *runHead) runState(kind, status, stop, problem string) *object {
	metadata := quote([]byte(`{"run_type":`), kind)
	if problem != "" {
		metadata = quote(append(metadata, `,"error":`...), problem)
	}
	o := newObject("id", r.id, "status", status, "created_at", r.began.UTC().Format("2006-01-02T15:04:05.000000Z"),
		"completed_at", r.ended.UTC().Format("2006-01-02T15:04:05.000000"), "agent_id", r.agent, "conversation_id", nil, "base_template_id", nil,
		"background", []byte("false"), "metadata", append(metadata, '}'), "request_config",
		[]byte(`{"use_assistant_message":true,"assistant_message_tool_name":"send_message","assistant_message_tool_kwarg":"message","include_return_message_types":null}`),
		"stop_reason", nil, "callback_url", nil, "callback_sent_at", nil, "callback_status_code", nil, "callback_error", nil,
		"ttft_ns", nil, "total_duration_ns", nil)
	if stop != "" {
		o.text("stop_reason", stop)
	}
	return o
}

func (r *runHead) stepState(id string, prompt, completion int, status, stop string) *object {
	_, model := splitHandle(r.handle)
	o := newObject("id", id, "origin", nil, "organization_id", organization, "provider_id", nil, "run_id", r.id, "agent_id", r.agent,
		"provider_name", "openai", "provider_category", "base", "model", model, "model_handle", r.handle, "model_endpoint", modelEndpoint,
		"context_window_limit", contextWindow, "completion_tokens", completion, "prompt_tokens", prompt, "total_tokens", prompt+completion,
		"cached_input_tokens", nil, "cache_write_tokens", nil, "reasoning_tokens", nil, "completion_tokens_details", nil,
		"prompt_tokens_details", nil, "stop_reason", nil, "tags", []byte("[]"), "tid", nil, "trace_id", nil, "request_id", nil,
		"messages", []byte("[]"), "feedback", nil, "project_id", nil, "error_type", nil, "error_data", nil, "status", status)
	if stop != "" {
		o.text("stop_reason", stop)
	}
	return o
}
