package render_test

import (
	"encoding/json"
	"maps"
	"testing"
)

// apis contains the ways in which a client can send a conversation.
var apis = []struct {
	name, path string
	body       func(tb testing.TB, chat map[string]any) string
}{
	{"chat", "/v1/chat/completions", func(tb testing.TB, chat map[string]any) string { tb.Helper(); return encode(tb, chat) }},
	{"messages", "/v1/messages", messagesBody},
	{"responses", "/v1/responses", responsesBody},
}

type object = map[string]any

// each calls f for each message of a chat completion.
func each(chat object, f func(role string, m object)) {
	list, _ := chat["messages"].([]any)
	for _, v := range list {
		m, _ := v.(object)
		role, _ := m["role"].(string)
		f(role, m)
	}
}

// eachCall calls f for each tool call of a message.
func eachCall(m object, f func(id, name any, arguments string)) {
	list, _ := m["tool_calls"].([]any)
	for _, v := range list {
		c, _ := v.(object)
		function, _ := c["function"].(object)
		arguments, _ := function["arguments"].(string)
		f(c["id"], function["name"], arguments)
	}
}

// parts returns a content as a list of parts of one type.
func parts(content any, kind string) (out []any) {
	switch c := content.(type) {
	case string:
		out = append(out, object{"type": kind, "text": c})
	case []any:
		for _, v := range c {
			part := maps.Clone(v.(object))
			part["type"] = kind
			out = append(out, part)
		}
	}
	return out
}

func reasoningOf(m object) string {
	for _, name := range []string{"reasoning", "reasoning_content"} {
		if text, _ := m[name].(string); text != "" {
			return text
		}
	}
	return ""
}

// messagesBody returns a conversation in Anthropic's API.
func messagesBody(tb testing.TB, chat object) string {
	tb.Helper()
	body := object{"model": "policy", "max_tokens": chat["max_tokens"], "stream": chat["stream"]}
	var list []any
	each(chat, func(role string, m object) {
		var blocks []any
		switch role {
		case "system", "developer":
			body["system"] = m["content"]
			return
		case "tool":
			role, blocks = "user", []any{object{"type": "tool_result", "tool_use_id": m["tool_call_id"], "content": m["content"]}}
		case "assistant":
			if text := reasoningOf(m); text != "" {
				blocks = append(blocks, object{"type": "thinking", "thinking": text, "signature": "x"})
			}
			if text, _ := m["content"].(string); text != "" {
				blocks = append(blocks, object{"type": "text", "text": text})
			}
			eachCall(m, func(id, name any, arguments string) {
				blocks = append(blocks, object{"type": "tool_use", "id": id, "name": name, "input": json.RawMessage(arguments)})
			})
		default:
			blocks = parts(m["content"], "text")
		}
		list = append(list, object{"role": role, "content": blocks})
	})
	body["messages"] = list
	var tools []any
	declared, _ := chat["tools"].([]any)
	for _, v := range declared {
		f, _ := v.(object)["function"].(object)
		tools = append(tools, object{"name": f["name"], "description": f["description"], "input_schema": f["parameters"]})
	}
	if tools != nil {
		body["tools"] = tools
	}
	return encode(tb, body)
}

// responsesBody returns a conversation in OpenAI's Responses API.
func responsesBody(tb testing.TB, chat object) string {
	tb.Helper()
	body := object{"model": "policy", "max_output_tokens": chat["max_tokens"], "stream": chat["stream"], "store": false}
	var input []any
	each(chat, func(role string, m object) {
		switch role {
		case "tool":
			input = append(input, object{"type": "function_call_output", "call_id": m["tool_call_id"], "output": m["content"]})
			return
		case "assistant":
		default:
			input = append(input, object{"type": "message", "role": role, "content": parts(m["content"], "input_text")})
			return
		}
		if text := reasoningOf(m); text != "" {
			input = append(input, object{"type": "reasoning", "summary": []any{}, "content": []any{object{"type": "reasoning_text", "text": text}}})
		}
		if text, _ := m["content"].(string); text != "" {
			input = append(input, object{"type": "message", "role": "assistant", "content": []any{object{"type": "output_text", "text": text, "annotations": []any{}}}})
		}
		eachCall(m, func(id, name any, arguments string) {
			input = append(input, object{"type": "function_call", "call_id": id, "name": name, "arguments": arguments})
		})
	})
	body["input"] = input
	var tools []any
	declared, _ := chat["tools"].([]any)
	for _, v := range declared {
		f, _ := v.(object)["function"].(object)
		tools = append(tools, object{"type": "function", "name": f["name"], "description": f["description"], "parameters": f["parameters"], "strict": false})
	}
	if tools != nil {
		body["tools"] = tools
	}
	return encode(tb, body)
}
