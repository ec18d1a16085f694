package letta

import "encoding/json"

// A ToolCallMessage asks for tools that the server runs.
type ToolCallMessage struct {
	MessageHead
	// ToolCall is deprecated: the first of ToolCalls.
	ToolCall  *ToolCall `json:"tool_call"`
	ToolCalls ToolCalls `json:"tool_calls"`
	Extra     Extra     `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (m *ToolCallMessage) UnmarshalJSON(b []byte) error {
	type plain ToolCallMessage
	return unmarshalKeeping(b, (*plain)(m), &m.Extra)
}

// MarshalJSON writes unknown fields as well.
func (m ToolCallMessage) MarshalJSON() ([]byte, error) {
	type plain ToolCallMessage
	return marshalKeeping(plain(m), m.Extra)
}

// Calls are the calls of the message, whichever field the server used.
func (m *ToolCallMessage) Calls() []ToolCall { return callsOf(m.ToolCalls, m.ToolCall) }

// A ToolCall is a call as the model wrote it, or, in a stream, a piece of one.
type ToolCall struct {
	// Name may be any junk text that the model wrote.
	Name *string `json:"name"`
	// Arguments is the JSON text of an object. The order of its keys and the form
	// of its numbers reach later prompts, so it is never parsed here.
	Arguments  *string `json:"arguments"`
	ToolCallID *string `json:"tool_call_id"`
	Extra      Extra   `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (c *ToolCall) UnmarshalJSON(b []byte) error {
	type plain ToolCall
	return unmarshalKeeping(b, (*plain)(c), &c.Extra)
}

// MarshalJSON writes unknown fields as well.
func (c ToolCall) MarshalJSON() ([]byte, error) {
	type plain ToolCall
	return marshalKeeping(plain(c), c.Extra)
}

// ToolCalls is the list of calls of a message. The schema also allows a single
// piece of a call in its place.
type ToolCalls []ToolCall

// UnmarshalJSON takes a list, a single call, or null.
func (c *ToolCalls) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '{' {
		var one ToolCall
		err := json.Unmarshal(b, &one)
		*c = ToolCalls{one}
		return err
	}
	return json.Unmarshal(b, (*[]ToolCall)(c))
}

func callsOf(many ToolCalls, one *ToolCall) []ToolCall {
	if len(many) == 0 && one != nil {
		return []ToolCall{*one}
	}
	return many
}

// A ToolReturnMessage holds the results of the calls of one step.
//
// Source: schemas/letta_message.py, and the published ToolReturnMessage schema.
type ToolReturnMessage struct {
	MessageHead

	// ToolReturn, Status, ToolCallID, Stdout and Stderr are deprecated: they repeat
	// the first of ToolReturns and say nothing of the others.
	ToolReturn string   `json:"tool_return"`
	Status     string   `json:"status"` // success, error
	ToolCallID string   `json:"tool_call_id"`
	Stdout     []string `json:"stdout"`
	Stderr     []string `json:"stderr"`

	// ToolReturns holds all results. Their order need not be that of the calls.
	// The text is the bare result; the model saw it packaged, as turns have it.
	ToolReturns []ToolReturn `json:"tool_returns"`

	Extra Extra `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (m *ToolReturnMessage) UnmarshalJSON(b []byte) error {
	type plain ToolReturnMessage
	return unmarshalKeeping(b, (*plain)(m), &m.Extra)
}

// MarshalJSON writes unknown fields as well.
func (m ToolReturnMessage) MarshalJSON() ([]byte, error) {
	type plain ToolReturnMessage
	return marshalKeeping(plain(m), m.Extra)
}

// Returns are the results of the message, whichever fields the server used.
func (m *ToolReturnMessage) Returns() []ToolReturn {
	if len(m.ToolReturns) == 0 && m.ToolCallID != "" {
		return []ToolReturn{{
			Type: "tool", ToolReturn: TextOf(m.ToolReturn), Status: m.Status,
			ToolCallID: m.ToolCallID, Stdout: m.Stdout, Stderr: m.Stderr,
		}}
	}
	return m.ToolReturns
}

// A ToolReturn is the result of one call: in messages of the server, and in what
// a client sends for a tool of its own.
type ToolReturn struct {
	Type       string   `json:"type,omitempty"` // tool
	ToolReturn Content  `json:"tool_return"`
	Status     string   `json:"status"` // success, error
	ToolCallID string   `json:"tool_call_id"`
	Stdout     []string `json:"stdout"`
	Stderr     []string `json:"stderr"`
	Extra      Extra    `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (r *ToolReturn) UnmarshalJSON(b []byte) error {
	type plain ToolReturn
	return unmarshalKeeping(b, (*plain)(r), &r.Extra)
}

// MarshalJSON writes unknown fields as well.
func (r ToolReturn) MarshalJSON() ([]byte, error) {
	type plain ToolReturn
	return marshalKeeping(plain(r), r.Extra)
}
