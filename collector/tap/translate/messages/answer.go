package messages

import (
	"encoding/json"
	"strconv"

	"github.com/rollout-rl/rollout/collector/tap/translate"
	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// reply writes answers. It has no state, because an answer contains nothing from its request.
type reply struct{}

// Whole appends a message.
func (reply) Whole(dst []byte, a *translate.Answer) []byte {
	dst = appendHead(dst, a)
	dst = append(dst, `"content":[`...)
	n := len(dst)
	next := func() {
		if len(dst) > n {
			dst = append(dst, ',')
		}
	}
	if spoken(a.Reasoning) {
		dst = append(append(dst, `{"type":"thinking","thinking":`...), a.Reasoning...)
		dst = append(append(append(dst, `,"signature":"`...), a.ID...), `"}`...)
	}
	for _, text := range [...]json.RawMessage{a.Content, a.Refusal} {
		if spoken(text) {
			next()
			dst = append(append(append(dst, `{"type":"text","text":`...), text...), '}')
		}
	}
	for i := range a.Calls {
		next()
		dst = appendCall(dst, a, i)
		dst = append(append(dst, input(a.Calls[i].Arguments)...), '}')
	}
	dst = append(dst, "],"...)
	dst = appendStop(dst, a)
	dst = append(dst, `,"usage":`...)
	return append(appendUsage(dst, a, a.OutputTokens), '}')
}

// spoken reports whether a JSON string is not empty.
func spoken(text json.RawMessage) bool { return len(text) > len(`""`) }

// appendHead appends the beginning of a message, up to its content.
func appendHead(dst []byte, a *translate.Answer) []byte {
	dst = append(append(dst, `{"id":"msg_`...), a.ID...)
	dst = append(dst, `","type":"message","role":"assistant","model":`...)
	return append(strictjson.AppendText(dst, a.Model), ',')
}

// appendCall appends a tool_use block up to the value of its input.
func appendCall(dst []byte, a *translate.Answer, i int) []byte {
	c := &a.Calls[i]
	dst = append(dst, `{"type":"tool_use","id":`...)
	if spoken(c.ID) {
		dst = append(dst, c.ID...)
	} else {
		dst = append(append(append(dst, `"toolu_`...), a.ID...), '_')
		dst = append(strconv.AppendInt(dst, int64(i), 10), '"')
	}
	dst = append(dst, `,"name":`...)
	if spoken(c.Name) {
		dst = append(dst, c.Name...)
	} else {
		dst = append(dst, `""`...)
	}
	return append(dst, `,"input":`...)
}

// input returns the input of a tool_use block for arguments. See Answers in the package comment.
func input(arguments json.RawMessage) string {
	if len(arguments) == 0 {
		return "{}"
	}
	outer := strictjson.New(string(arguments), strictjson.Options{})
	s := strictjson.New(outer.Text(), strictjson.Options{CheckedUTF8: true})
	if s.Kind() == '{' {
		object := s.Raw()
		if outer.End() == nil && s.End() == nil && wrapped(object) == "" {
			return object
		}
	}
	return `{"` + argumentsMember + `":` + string(arguments) + "}"
}

// appendStop appends the members stop_reason and stop_sequence.
func appendStop(dst []byte, a *translate.Answer) []byte {
	reason, matched := "end_turn", "null"
	switch a.Finish {
	case "stop", "":
		switch {
		case len(a.Calls) > 0: // some engines report "stop" after a call that the request required
			reason = "tool_use"
		case spoken(a.Refusal):
			reason = "refusal"
		case a.Matched != nil:
			reason, matched = "stop_sequence", string(a.Matched)
		}
	case "tool_calls", "function_call":
		reason = "tool_use"
	case "content_filter":
		reason = "refusal"
	default: // "length", and all reasons of engines for incomplete answers, such as "abort"
		reason = "max_tokens"
	}
	dst = append(append(dst, `"stop_reason":"`...), reason...)
	return append(append(dst, `","stop_sequence":`...), matched...)
}

func appendUsage(dst []byte, a *translate.Answer, output int64) []byte {
	dst = strconv.AppendInt(append(dst, `{"input_tokens":`...), max(0, a.PromptTokens-a.Cached), 10)
	dst = strconv.AppendInt(append(dst, `,"cache_creation_input_tokens":0,"cache_read_input_tokens":`...), a.Cached, 10)
	dst = strconv.AppendInt(append(dst, `,"output_tokens":`...), output, 10)
	return append(dst, '}')
}
