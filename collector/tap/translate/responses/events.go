package responses

import (
	"strconv"

	"github.com/rollout-rl/rollout/collector/tap/translate"
	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// Waiting appends response.created the first time, and then response.in_progress.
func (r *reply) Waiting(dst []byte) []byte {
	kind := "response.in_progress"
	if r.sequence == 0 {
		kind = "response.created"
	}
	return r.state(dst, kind, nil, nil)
}

// Events appends all events of the answer. The last one is response.completed or response.incomplete:
// this API has no other end marker.
func (r *reply) Events(dst []byte, a *translate.Answer) []byte {
	r.begin(a)
	if r.sequence == 0 {
		dst = r.state(dst, "response.created", nil, nil)
	}
	dst = r.state(dst, "response.in_progress", nil, nil)
	for i, o := range r.outputs(a) {
		dst = r.output(dst, i, &o)
	}
	return r.state(dst, "response."+statusOf(a), a, nil)
}

// Failed appends response.failed.
func (r *reply) Failed(dst []byte, e *translate.Error) []byte {
	if r.sequence == 0 {
		dst = r.state(dst, "response.created", nil, nil)
	}
	return r.state(dst, "response.failed", nil, e)
}

// output appends the events of an output item. The whole text is one delta.
func (r *reply) output(dst []byte, index int, o *output) []byte {
	dst = r.event(dst, "response.output_item.added", index)
	dst = append(o.append(append(dst, `,"item":`...), false), end...)
	name, member := o.textEvents()
	inPart := o.callID == ""
	if inPart {
		dst = r.inPart(dst, "response.content_part.added", index, o)
		dst = append(o.part(append(dst, `,"part":`...), `""`), end...)
	}
	for _, kind := range [...]string{"delta", "done"} {
		dst = r.event(dst, name+kind, index)
		dst = append(append(append(dst, `,"item_id":"`...), o.id...), '"')
		if inPart {
			dst = append(dst, `,"content_index":0`...)
		}
		if member == "text" && o.kind == "message" {
			dst = append(dst, `,"logprobs":[]`...)
		}
		key := member
		if kind == "delta" {
			key = kind
		}
		dst = append(append(append(dst, `,"`...), key...), `":`...)
		dst = append(append(dst, o.text...), end...)
	}
	if inPart {
		dst = r.inPart(dst, "response.content_part.done", index, o)
		dst = append(o.part(append(dst, `,"part":`...), o.text), end...)
	}
	dst = r.event(dst, "response.output_item.done", index)
	return append(o.append(append(dst, `,"item":`...), true), end...)
}

// textEvents returns the beginning of the names of the events with the text, and the member with the
// whole text.
func (o *output) textEvents() (name, member string) {
	switch {
	case o.kind == "custom_tool_call":
		return "response.custom_tool_call_input.", "input"
	case o.kind == "function_call":
		return "response.function_call_arguments.", "arguments"
	case o.kind == "reasoning":
		return "response.reasoning_text.", "text"
	case o.refusal:
		return "response.refusal.", "refusal"
	}
	return "response.output_text.", "text"
}

// end is the end of an event.
const end = "}\n\n"

// event appends the beginning of an event about an output item.
func (r *reply) event(dst []byte, kind string, index int) []byte {
	dst = r.start(dst, kind)
	return strconv.AppendInt(append(dst, `,"output_index":`...), int64(index), 10)
}

func (r *reply) inPart(dst []byte, kind string, index int, o *output) []byte {
	dst = append(append(r.event(dst, kind, index), `,"item_id":"`...), o.id...)
	return append(dst, `","content_index":0`...)
}

// state appends an event with the response.
func (r *reply) state(dst []byte, kind string, a *translate.Answer, e *translate.Error) []byte {
	r.begin(a)
	dst = append(r.start(dst, kind), `,"response":`...)
	return append(r.response(dst, a, e), end...)
}

// start appends the beginning of an event.
func (r *reply) start(dst []byte, kind string) []byte {
	dst = append(append(append(dst, "event: "...), kind...), "\ndata: {\"type\":\""...)
	dst = append(append(dst, kind...), `","sequence_number":`...)
	dst = strconv.AppendInt(dst, int64(r.sequence), 10)
	r.sequence++
	return dst
}

// Error returns the body of an answer that reports an error.
func (Dialect) Error(e *translate.Error) []byte {
	kind := "invalid_request_error"
	if e.Status >= 500 {
		kind = "server_error"
	}
	out := strictjson.AppendText([]byte(`{"error":{"message":`), e.Message)
	out = append(append(append(out, `,"type":"`...), kind...), `","param":null,"code":`...)
	return append(strictjson.AppendText(out, e.Code), "}}\n"...)
}

// failure returns the code of the error in response.failed. Clients retry unless they recognize the
// code.
func failure(e *translate.Error) string {
	switch {
	case e.Code == translate.CodeOverflow:
		return e.Code
	case e.Status == 429:
		return "rate_limit_exceeded"
	case e.Status >= 400 && e.Status < 500:
		return "invalid_prompt"
	}
	return "server_error"
}
