package responses

import (
	"crypto/rand"
	"strconv"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/collector/tap/translate"
	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// A reply writes the answer to one request. It implements [translate.Reply].
type reply struct {
	model string          // JSON
	echo  string          // members of the request for the answer, each preceded by a comma
	tools map[string]tool // tools whose calls have another form, by the names of their functions

	id       string // of the response, without quotes
	created  int64
	sequence int // of the next event
}

// The answer contains these members of the request, or their defaults. The instructions and the tools can
// be large, and clients have them, so the answer does not repeat them.
var echoed = [...]struct{ name, value string }{
	{"max_output_tokens", "null"},
	{"metadata", "{}"},
	{"parallel_tool_calls", "true"},
	{"prompt_cache_key", "null"},
	{"reasoning", `{"effort":null,"summary":null}`},
	{"safety_identifier", "null"},
	{"temperature", "null"},
	{"text", `{"format":{"type":"text"}}`},
	{"tool_choice", `"auto"`},
	{"top_p", "null"},
	{"truncation", `"disabled"`},
	{"user", "null"},
}

func (p *parser) reply() *reply {
	r := &reply{model: strings.Clone(p.model)}
	if r.model == "" {
		r.model = `""`
	}
	var b strings.Builder
	for i, member := range echoed {
		value := p.echo[i]
		if value == "" {
			value = member.value
		}
		b.WriteString(`,"` + member.name + `":`)
		b.WriteString(oneLine.Replace(value))
	}
	r.echo = b.String()
	for name, t := range p.tools {
		if t.custom || t.namespace != "" {
			if r.tools == nil {
				r.tools = map[string]tool{}
			}
			r.tools[strings.Clone(name)] = tool{t.custom, strings.Clone(t.namespace), strings.Clone(t.name)}
		}
	}
	return r
}

// oneLine removes line breaks, because an event must be one line. Valid JSON has line breaks only
// between its tokens.
var oneLine = strings.NewReplacer("\n", "", "\r", "")

// Whole appends the body of an answer that is not a stream.
func (r *reply) Whole(dst []byte, a *translate.Answer) []byte {
	r.begin(a)
	return append(r.response(dst, a, nil), '\n')
}

// begin sets the id and the time of the response. Clients require that they stay the same in all events.
func (r *reply) begin(a *translate.Answer) {
	switch {
	case r.id != "":
	case a != nil:
		r.id, r.created = "resp_"+a.ID, a.Created
	default:
		r.id, r.created = "resp_"+strings.ToLower(rand.Text()), time.Now().Unix()
	}
}

// response appends the response object. It is in progress if there is neither an answer nor an error.
func (r *reply) response(dst []byte, a *translate.Answer, e *translate.Error) []byte {
	status := "in_progress"
	switch {
	case a != nil:
		status = statusOf(a)
	case e != nil:
		status = "failed"
	}
	dst = append(append(append(dst, `{"id":"`...), r.id...), `","object":"response","created_at":`...)
	dst = strconv.AppendInt(dst, r.created, 10)
	dst = append(append(append(dst, `,"status":"`...), status...), `","background":false,"error":`...)
	if e == nil {
		dst = append(dst, "null"...)
	} else {
		dst = append(append(append(dst, `{"code":"`...), failure(e)...), `","message":`...)
		dst = append(strictjson.AppendText(dst, e.Message), '}')
	}
	dst = append(dst, `,"incomplete_details":`...)
	switch {
	case status != incomplete:
		dst = append(dst, "null"...)
	case a.Finish == "content_filter":
		dst = append(dst, `{"reason":"content_filter"}`...)
	default:
		dst = append(dst, `{"reason":"max_output_tokens"}`...)
	}
	dst = append(append(dst, `,"instructions":null,"model":`...), r.model...)
	dst = append(dst, `,"output":[`...)
	if a != nil {
		for i, o := range r.outputs(a) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = o.append(dst, true)
		}
	}
	dst = append(append(dst, `],"previous_response_id":null,"store":false,"tools":[]`...), r.echo...)
	dst = append(dst, `,"usage":`...)
	if a == nil {
		return append(dst, "null}"...)
	}
	for _, count := range [...]struct {
		before string
		n      int64
	}{
		{`{"input_tokens":`, a.PromptTokens},
		{`,"input_tokens_details":{"cached_tokens":`, a.Cached},
		{`,"cache_write_tokens":0},"output_tokens":`, a.OutputTokens},
		{`,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":`, a.PromptTokens + a.OutputTokens},
	} {
		dst = strconv.AppendInt(append(dst, count.before...), count.n, 10)
	}
	return append(dst, "}}"...)
}

const (
	completed  = "completed"
	incomplete = "incomplete"
)

func statusOf(a *translate.Answer) string {
	switch a.Finish {
	case "stop", "tool_calls", "function_call", "":
		return completed
	}
	return incomplete // "length", and all reasons of engines for incomplete answers, such as "abort"
}

// An output is an output item. All texts are JSON.
type output struct {
	id, status string // without quotes
	kind       string // reasoning, message, function_call or custom_tool_call
	text       string // the reasoning, the text, the arguments or the input
	refusal    bool   // text is a refusal
	callID     string
	tool       tool
}

// outputs returns the output items of an answer.
func (r *reply) outputs(a *translate.Answer) []output {
	var all []output
	add := func(prefix string, o output) {
		o.id = prefix + a.ID + "_" + strconv.Itoa(len(all))
		o.status = statusOf(a)
		all = append(all, o)
	}
	if a.Reasoning != nil {
		add(reasoningPrefix, output{kind: "reasoning", text: string(a.Reasoning)})
	}
	if a.Content != nil {
		add(messagePrefix, output{kind: "message", text: string(a.Content)})
	}
	if a.Refusal != nil {
		add(messagePrefix, output{kind: "message", text: string(a.Refusal), refusal: true})
	}
	for i := range a.Calls {
		c := &a.Calls[i]
		o := output{kind: "function_call", callID: string(c.ID), text: string(c.Arguments), tool: tool{name: string(c.Name)}}
		if t, has := r.tools[unquote(o.tool.name)]; has {
			o.tool = t
		}
		prefix := callPrefix
		if o.tool.custom {
			o.kind, prefix = "custom_tool_call", customPrefix
			if input := inputOf(o.text); input != "" {
				o.text = input
			} else {
				prefix = rawPrefix
			}
		}
		add(prefix, o)
	}
	if len(all) == 0 { // so that the next request contains the answer
		add(messagePrefix, output{kind: "message", text: `""`})
	}
	return all
}

// inputOf returns the input in the arguments of a custom tool's function, or "" if the arguments have
// another form.
func inputOf(arguments string) (input string) {
	outer := strictjson.New(arguments, strictjson.Options{})
	s := strictjson.New(outer.Text(), strictjson.Options{HalfPairs: true})
	if s.Kind() != '{' {
		return ""
	}
	for name := range s.Members {
		if name != "input" || s.Kind() != '"' {
			return ""
		}
		input = s.Raw()
	}
	if outer.End() != nil || s.End() != nil {
		return ""
	}
	return input
}

// append appends the item. If whole is false, it is the item before its text.
func (o *output) append(dst []byte, whole bool) []byte {
	status, text := o.status, o.text
	if !whole {
		status, text = "in_progress", `""`
	}
	dst = append(append(append(dst, `{"id":"`...), o.id...), `","type":"`...)
	dst = append(append(dst, o.kind...), `","status":"`...)
	dst = append(append(dst, status...), '"')
	switch o.kind {
	case "reasoning":
		dst = append(dst, `,"summary":[],"content":[`...)
	case "message":
		dst = append(dst, `,"role":"assistant","content":[`...)
	default:
		dst = append(append(dst, `,"call_id":`...), o.callID...)
		dst = append(append(dst, `,"name":`...), o.tool.name...)
		if o.tool.namespace != "" {
			dst = append(append(dst, `,"namespace":`...), o.tool.namespace...)
		}
		if o.tool.custom {
			dst = append(dst, `,"input":`...)
		} else {
			dst = append(dst, `,"arguments":`...)
		}
		return append(append(dst, text...), '}')
	}
	if whole {
		dst = o.part(dst, text)
	}
	return append(dst, "]}"...)
}

// part appends the content part of a message or of reasoning, with the given text.
func (o *output) part(dst []byte, text string) []byte {
	switch {
	case o.refusal:
		dst = append(dst, `{"type":"refusal","refusal":`...)
	case o.kind == "reasoning":
		dst = append(dst, `{"type":"reasoning_text","text":`...)
	default:
		dst = append(dst, `{"type":"output_text","annotations":[],"logprobs":[],"text":`...)
	}
	return append(append(dst, text...), '}')
}
