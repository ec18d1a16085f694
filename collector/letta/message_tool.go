package letta

// A ToolCall is a call as the model wrote it.
type ToolCall struct {
	JSON RawJSON
	// Name can be any string, because the model wrote it.
	Name string `letta:"name"`
	// Arguments is the JSON text of an object. It is never re-encoded, because the order of its
	// keys and the form of its numbers appear in later prompts.
	Arguments  string `letta:"arguments"`
	ToolCallID string `letta:"tool_call_id"`
}

// A ToolReturn is the result of one call.
type ToolReturn struct {
	JSON       RawJSON  // empty if the message has only the deprecated fields
	Type       string   `letta:"type,loose"` // tool
	Content    Content  `letta:"tool_return"`
	Status     string   `letta:"status"` // success, error
	ToolCallID string   `letta:"tool_call_id"`
	Stdout     []string `letta:"stdout,loose"`
	Stderr     []string `letta:"stderr,loose"`
}

// An Approval is the client's answer to a pending call: a decision, or the result of a client tool.
type Approval struct {
	JSON       RawJSON
	Type       string `letta:"type,kind"` // approval, tool
	ToolCallID string `letta:"tool_call_id" kinds:"approval tool"`

	// The fields of a decision.
	Approve bool   `letta:"approve" kinds:"approval"`
	Reason  string `letta:"reason,loose" kinds:"approval"`

	// The fields of a result.
	Content Content  `letta:"tool_return" kinds:"tool"`
	Status  string   `letta:"status" kinds:"tool"`
	Stdout  []string `letta:"stdout,loose" kinds:"tool"`
	Stderr  []string `letta:"stderr,loose" kinds:"tool"`
}
