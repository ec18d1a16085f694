package proxy

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/rollout-rl/rollout/collector/tap/translate"
	"github.com/rollout-rl/rollout/collector/tap/translate/messages"
	"github.com/rollout-rl/rollout/collector/tap/translate/responses"
)

// apis lists the APIs of a session by the end of the path. A chat completion is not translated.
var apis = []struct {
	path    string
	dialect translate.Dialect
}{
	{"/chat/completions", nil},
	{"/messages", messages.Dialect{}},
	{"/responses", responses.Dialect{}},
}

// apiOf returns the API that a path belongs to. If a POST request to the path is a call, calls is true.
func apiOf(path string) (calls bool, d translate.Dialect) {
	for _, a := range apis {
		switch {
		case strings.HasSuffix(path, a.path):
			return true, a.dialect
		case strings.Contains(path, a.path+"/"):
			d = a.dialect
		}
	}
	return false, d
}

// formOf returns the API whose form the errors for a path have, or nil for the form of OpenAI.
func formOf(path string) translate.Dialect {
	_, d := apiOf(clean(path))
	return d
}

// countSuffix is the end of the path for counting the tokens of a request in Anthropic's API.
const countSuffix = "/count_tokens"

// A counter is a dialect whose API counts the tokens of a request.
type counter interface {
	translate.Dialect
	Count(body []byte) (*translate.Call, error)
}

// A counted dialect translates requests that only count tokens.
type counted struct{ counter }

func (d counted) Request(body []byte) (*translate.Call, error) { return d.Count(body) }

// countTokens serves …/messages/count_tokens. It calls no engine, and the session does not record it.
func (p *Proxy) countTokens(w http.ResponseWriter, r *http.Request, t *target) *refusal {
	calls, api := apiOf(strings.TrimSuffix(t.path, countSuffix))
	d, ok := api.(counter)
	switch {
	case !calls || !ok:
		return errNotServed
	case p.cfg.Renderer == nil:
		return errNoRenderer
	}
	id := t.session.ID()
	share := p.enterCall(id)
	if share == nil {
		return p.tooManyCalls()
	}
	defer p.leaveCall(id)
	c := &chatCall{p: p, w: w, client: r.Context(), dialect: counted{d}, session: id, share: share, x: exchange{p: p}}
	defer c.end()
	if bad := c.read(r.Context(), r); bad != nil {
		return bad
	}
	n, err := p.promptTokens(c.q.body)
	if err != nil {
		return refused(err)
	}
	return sendJSON(w, http.StatusOK, map[string]int{"input_tokens": n})
}

// chatBody returns the chat completion for the body of the client's request. The result does not share
// memory with body.
func (c *chatCall) chatBody(body []byte) ([]byte, *refusal) {
	if c.dialect == nil {
		return slices.Clone(body), nil
	}
	var call *translate.Call
	err := errPanic
	c.p.guard("request", func() { call, err = c.dialect.Request(body) })
	if err != nil {
		c.p.count(func(s *Stats) { s.Unread["malformed"]++ })
		if e, ok := errors.AsType[*translate.Error](err); ok {
			return nil, &refusal{e.Status, e.Code, e.Message}
		}
		return nil, &refusal{http.StatusInternalServerError, "panic", err.Error()}
	}
	c.call.Dialect, c.reply, c.streams = c.dialect.Name(), call.Reply, call.Streamed
	return call.Chat, c.reserve(int64(len(call.Chat)))
}

// keepAlive appends an event or a comment that keeps the client waiting to c.out.
func (c *chatCall) keepAlive() {
	if c.reply != nil {
		c.out = c.reply.Waiting(c.out)
		return
	}
	c.out = append(c.out, ": the engine is working\n\n"...)
}

// answer returns the whole answer in the form that a dialect needs. It must be called after the
// call is recorded.
func (c *chatCall) answer() *translate.Answer {
	t := &c.call.Call
	// If the ids are malformed, t lacks the counts and the finish reason.
	var usage struct {
		Prompt  int32 `json:"prompt_tokens"`
		Output  int32 `json:"completion_tokens"`
		Details struct {
			Cached int32 `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
	_ = json.Unmarshal(c.view.parts.members["usage"], &usage) // after an error, the other counts are used
	a := &translate.Answer{
		ID: c.session[:16] + "_" + strconv.Itoa(c.admission.Number()), Model: c.view.name(), Created: t.Began.Unix(), Finish: t.Finish,
		PromptTokens: int64(max(0, t.PromptTokens, usage.Prompt)), OutputTokens: int64(max(0, t.OutputTokens, usage.Output)), Cached: int64(max(0, t.Cached, usage.Details.Cached)),
	}
	if len(c.view.parts.choices) == 0 {
		return a
	}
	choice := c.view.parts.choices[0]
	a.Finish = cmp.Or(unquoted(choice.members["finish_reason"]), a.Finish)
	m := &choice.message
	a.Content, a.Refusal, a.Reasoning = m.content.value(), m.refusal.value(), m.thoughts.value()
	if a.Reasoning == nil {
		a.Reasoning = m.reasoning.value()
	}
	for _, stop := range []string{"stop_reason", "matched_stop"} { // vLLM's name, and SGLang's name
		if v := choice.members[stop]; len(v) > 0 && v[0] == '"' {
			a.Matched = v
		}
	}
	a.Calls = toolCalls(m.whole)
	return a
}

// value returns the text as a JSON string, or nil if there is none.
func (t *spoken) value() json.RawMessage {
	if !t.seen {
		return nil
	}
	return t.append(nil)
}

// toolCalls returns the calls in the list tool_calls of a whole answer.
func toolCalls(list []byte) (calls []translate.ToolCall) {
	var in []struct {
		ID       json.RawMessage `json:"id"`
		Function struct {
			Name      json.RawMessage `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"function"`
	}
	if len(list) == 0 || json.Unmarshal(list, &in) != nil {
		return nil
	}
	text := func(v json.RawMessage) json.RawMessage {
		if len(v) > 0 && v[0] == '"' {
			return v
		}
		return json.RawMessage(`""`)
	}
	for _, t := range in {
		c := translate.ToolCall{ID: text(t.ID), Name: text(t.Function.Name), Arguments: text(t.Function.Arguments)}
		if object := t.Function.Arguments; len(object) > 0 && object[0] == '{' {
			c.Arguments = quoted(string(object))
		}
		calls = append(calls, c)
	}
	return calls
}

// translatedRefusal passes an error of the engine to the client in the form of its API.
func (c *chatCall) translatedRefusal(a engineAnswer) {
	e := engineError(a.res.StatusCode, a.body)
	if !c.headed {
		_ = c.write(a.res, c.dialect.Error(e)) // an error means that the client disconnected
		return
	}
	c.out = c.reply.Failed(c.out, e)
	c.cutOff()
}

// engineError returns an engine's error for a client whose request was translated.
func engineError(status int, body []byte) *translate.Error {
	var in struct {
		Message string `json:"message"`
		Error   struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	_ = json.Unmarshal(body, &in) // after an error, the parsed fields are used
	e := &translate.Error{Status: status, Code: "engine_error", Message: cmp.Or(in.Error.Message, in.Message)}
	if statesOverflow(body) {
		e.Code = translate.CodeOverflow
	}
	if e.Message == "" {
		e.Message = fmt.Sprintf("the engine answered %d: %.1024s", status, body)
	}
	return e
}
