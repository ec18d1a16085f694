package letta

import "encoding/json"

// A LettaRequest is the body of a send, with the members that this module sends. A nil field is
// omitted, so the server uses its default.
//
// Source: schemas/letta_request.py:38-204 of the server, and its published LettaRequest schema.
type LettaRequest struct { //nolint:revive // the name of the published schema
	Messages InputMessages `json:"messages,omitempty"`

	// MaxSteps limits the number of model calls. The server's default is 50.
	MaxSteps *int `json:"max_steps,omitempty"`

	// ClientTools are the client tools that the model can call. They must be repeated in every
	// request.
	ClientTools []ClientTool `json:"client_tools,omitempty"`

	// OverrideModel is the handle of the model for this request only.
	OverrideModel *string `json:"override_model,omitempty"`
	// OverrideSystem has no effect on the native path (adapters/sglang_native_adapter.py:308-313).
	OverrideSystem *string `json:"override_system,omitempty"`

	// ReturnLogprobs and ReturnTokenIDs must be sent together or not at all. One flag alone turns
	// the token data off, because the server overwrites its stored flags together
	// (agents.py:1771-1783).
	ReturnLogprobs *bool `json:"return_logprobs,omitempty"`
	ReturnTokenIDs *bool `json:"return_token_ids,omitempty"`

	// Streaming is for the conversations route, which streams its answer unless Streaming is false.
	Streaming *bool `json:"streaming,omitempty"`
}

// InputMessages are the messages of a request.
type InputMessages []InputMessage

// An InputMessage is a *MessageCreate, an *ApprovalCreate, or a *ToolReturnCreate.
type InputMessage interface{ inputMessage() }

func (*MessageCreate) inputMessage()    {}
func (*ApprovalCreate) inputMessage()   {}
func (*ToolReturnCreate) inputMessage() {}

// An Input is the JSON content of a sent message: a string or a list of parts. See TextOf.
type Input = json.RawMessage

// TextOf returns an input that consists of text.
func TextOf(text string) Input { return Input(Text(text)) }

// InputText returns the text of an input, as Content.String does.
func InputText(in Input) string {
	var c Content
	s := newScanner(string(in))
	if c.read(s); s.End() != nil {
		return ""
	}
	return c.String()
}

// A MessageCreate is a message from the user, the system or the assistant.
type MessageCreate struct {
	Type    string `json:"type,omitempty"` // message, the default
	Role    string `json:"role"`           // user, system, assistant
	Content Input  `json:"content"`
}

// UserText returns a user message with the text.
func UserText(text string) *MessageCreate {
	return &MessageCreate{Role: "user", Content: TextOf(text)}
}

// An ApprovalCreate answers all pending calls with decisions or with results of client tools.
type ApprovalCreate struct {
	Type      string   `json:"type"` // approval
	Approvals []Answer `json:"approvals,omitempty"`
	// Approve, ApprovalRequestID and Reason are the deprecated form of an answer.
	Approve           *bool   `json:"approve,omitempty"`
	ApprovalRequestID *string `json:"approval_request_id,omitempty"`
	Reason            *string `json:"reason,omitempty"`
}

// An Answer answers one pending call: an *ApprovalReturn or a *ToolResult.
type Answer interface{ answer() }

func (*ApprovalReturn) answer() {}
func (*ToolResult) answer()     {}

// An ApprovalReturn is a decision about one call.
type ApprovalReturn struct {
	Type       string  `json:"type"` // approval
	ToolCallID string  `json:"tool_call_id"`
	Approve    bool    `json:"approve"`
	Reason     *string `json:"reason"`
}

// A ToolResult is the result of a client tool.
type ToolResult struct {
	Type       string   `json:"type"` // tool
	ToolReturn Input    `json:"tool_return"`
	Status     string   `json:"status"` // success, error
	ToolCallID string   `json:"tool_call_id"`
	Stdout     []string `json:"stdout"`
	Stderr     []string `json:"stderr"`
}

// A ToolReturnCreate answers pending calls of client tools. Type is required. Without Type, the
// server parses the object as a message and answers with 422.
type ToolReturnCreate struct {
	Type        string       `json:"type"` // tool_return
	ToolReturns []ToolResult `json:"tool_returns"`
}

// A ClientTool is a tool that the caller runs.
type ClientTool struct {
	Name        string  `json:"name"`
	Description *string `json:"description,omitempty"`
	// Parameters is a JSON schema. It is kept as text, because the order of its keys appears in the
	// prompt.
	Parameters json.RawMessage `json:"parameters,omitempty"`
}
