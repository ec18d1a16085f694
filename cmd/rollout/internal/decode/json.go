package decode

import "github.com/rollout-rl/rollout/cmd/rollout/internal/rowjson"

// AppendJSON appends the messages as an array.
func AppendJSON(b []byte, all []Message) []byte {
	b = append(b, '[')
	for i := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = all[i].AppendJSON(b)
	}
	return append(b, ']')
}

// AppendJSON appends the message in the form of OpenAI's Chat Completions API.
func (m *Message) AppendJSON(b []byte) []byte {
	b = append(append(append(b, `{"role":"`...), m.Role...), '"')
	b = rowjson.AppendText(append(b, `,"content":`...), m.Content)
	if m.Reasoning != "" {
		b = rowjson.AppendText(append(b, `,"reasoning_content":`...), m.Reasoning)
	}
	if m.CallID != "" {
		b = rowjson.AppendText(append(b, `,"tool_call_id":`...), m.CallID)
	}
	return append(AppendCalls(b, `,"tool_calls":[`, `,"type":"function"`, m.Calls), '}')
}

// AppendCalls appends an array of calls, or nothing if there is none. kind is a member of each call.
func AppendCalls(b []byte, begin, kind string, calls []Call) []byte {
	for i, c := range calls {
		b = append(b, []string{begin, `,`}[min(i, 1)]...)
		b = rowjson.AppendText(append(b, `{"id":`...), c.ID)
		b = rowjson.AppendText(append(append(b, kind...), `,"function":{"name":`...), c.Name)
		b = append(rowjson.AppendText(append(b, `,"arguments":`...), c.Arguments), `}}`...)
	}
	if len(calls) > 0 {
		b = append(b, ']')
	}
	return b
}
