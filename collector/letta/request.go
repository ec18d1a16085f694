package letta

import "encoding/json"

// A LettaRequest is the body of a send. A nil field is left out, and the server
// then takes its own default.
//
// Source: schemas/letta_request.py:38-204 of the server, and its published
// LettaRequest schema.
type LettaRequest struct { //nolint:revive // the name of the published schema
	// Messages or Input must be given, not both (else 422).
	Messages InputMessages `json:"messages,omitempty"`
	// Input is short for one user message.
	Input Content `json:"input,omitzero"`

	// MaxSteps bounds the calls of the model; the server's default is 50.
	MaxSteps *int `json:"max_steps,omitempty"`

	// UseAssistantMessage and the two after it are deprecated: they say how older
	// kinds of agents speak through a tool.
	UseAssistantMessage      *bool   `json:"use_assistant_message,omitempty"`
	AssistantMessageToolName *string `json:"assistant_message_tool_name,omitempty"`
	AssistantMessageToolArg  *string `json:"assistant_message_tool_kwarg,omitempty"`

	// IncludeReturnMessageTypes filters messages of the answer, never its turns.
	IncludeReturnMessageTypes []MessageType `json:"include_return_message_types,omitempty"`

	// EnableThinking is deprecated; the schema calls it a string and gives it the
	// default true, so it is kept as it is.
	EnableThinking json.RawMessage `json:"enable_thinking,omitempty"`

	// ClientTools must be sent again with every request of a conversation in which
	// they may be called.
	ClientTools  []ClientTool  `json:"client_tools,omitempty"`
	ClientSkills []ClientSkill `json:"client_skills,omitempty"`

	// OverrideModel is a model's handle for this request only.
	OverrideModel *string `json:"override_model,omitempty"`
	// OverrideSystem is ignored by the native path (letta-ai/letta,
	// adapters/sglang_native_adapter.py:308-313).
	OverrideSystem *string `json:"override_system,omitempty"`

	IncludeCompactionMessages *bool `json:"include_compaction_messages,omitempty"`

	// ReturnLogprobs alone turns token data off: the server overwrites its three
	// stored flags together (agents.py:1771-1783). Send both or neither.
	ReturnLogprobs *bool `json:"return_logprobs,omitempty"`
	TopLogprobs    *int  `json:"top_logprobs,omitempty"`
	ReturnTokenIDs *bool `json:"return_token_ids,omitempty"`

	// Streaming and the fields after it belong to the streaming and conversation
	// forms of the request. The conversations route streams unless told not to.
	Streaming    *bool   `json:"streaming,omitempty"`
	StreamTokens *bool   `json:"stream_tokens,omitempty"`
	IncludePings *bool   `json:"include_pings,omitempty"`
	Background   *bool   `json:"background,omitempty"`
	AgentID      *string `json:"agent_id,omitempty"`
	CallbackURL  *string `json:"callback_url,omitempty"`

	Extra Extra `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (r *LettaRequest) UnmarshalJSON(b []byte) error {
	type plain LettaRequest
	return unmarshalKeeping(b, (*plain)(r), &r.Extra)
}

// MarshalJSON writes unknown fields as well.
func (r LettaRequest) MarshalJSON() ([]byte, error) {
	type plain LettaRequest
	return marshalKeeping(plain(r), r.Extra)
}

// InputMessages are the messages of a request.
type InputMessages []InputMessage

// UnmarshalJSON chooses the kind of each message by its type. An approval without
// one is told by its fields, as the server does (letta_request.py:129-144).
func (m *InputMessages) UnmarshalJSON(b []byte) error {
	list, err := unmarshalUnion(b, newInputMessage)
	*m = list
	return err
}

// An InputMessage is a *MessageCreate, an *ApprovalCreate, a *ToolReturnCreate, or
// a *Raw.
type InputMessage interface{ inputMessage() }

func (*MessageCreate) inputMessage()    {}
func (*ApprovalCreate) inputMessage()   {}
func (*ToolReturnCreate) inputMessage() {}
func (*Raw) inputMessage()              {}

func newInputMessage(data []byte) (InputMessage, error) {
	var head struct {
		Type              *string         `json:"type"`
		Approvals         json.RawMessage `json:"approvals"`
		Approve           json.RawMessage `json:"approve"`
		ApprovalRequestID json.RawMessage `json:"approval_request_id"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, err
	}
	if head.Type == nil {
		if head.Approvals != nil || head.Approve != nil || head.ApprovalRequestID != nil {
			return new(ApprovalCreate), nil
		}
		return new(MessageCreate), nil
	}
	switch *head.Type {
	case "message":
		return new(MessageCreate), nil
	case "approval":
		return new(ApprovalCreate), nil
	case "tool_return":
		return new(ToolReturnCreate), nil
	}
	return &Raw{Kind: *head.Type}, nil
}

// A MessageCreate is a message of a user, the system or the assistant.
type MessageCreate struct {
	Type        string  `json:"type,omitempty"` // message, the default
	Role        string  `json:"role"`           // user, system, assistant
	Content     Content `json:"content"`
	Name        *string `json:"name,omitempty"`
	OTID        *string `json:"otid,omitempty"`
	SenderID    *string `json:"sender_id,omitempty"`
	BatchItemID *string `json:"batch_item_id,omitempty"`
	GroupID     *string `json:"group_id,omitempty"`
	Extra       Extra   `json:"-"`
}

// UserText is a message of the user that says text.
func UserText(text string) *MessageCreate {
	return &MessageCreate{Role: "user", Content: TextOf(text)}
}

// UnmarshalJSON keeps unknown fields.
func (m *MessageCreate) UnmarshalJSON(b []byte) error {
	type plain MessageCreate
	return unmarshalKeeping(b, (*plain)(m), &m.Extra)
}

// MarshalJSON writes unknown fields as well.
func (m MessageCreate) MarshalJSON() ([]byte, error) {
	type plain MessageCreate
	return marshalKeeping(plain(m), m.Extra)
}

// An ApprovalCreate answers pending calls: with a decision, or with the result of
// a tool of the client. Every pending call must be answered at once.
type ApprovalCreate struct {
	Type      string    `json:"type"` // approval
	Approvals Approvals `json:"approvals,omitempty"`
	// Approve, ApprovalRequestID and Reason are the deprecated form.
	Approve           *bool   `json:"approve,omitempty"`
	ApprovalRequestID *string `json:"approval_request_id,omitempty"`
	Reason            *string `json:"reason,omitempty"`
	GroupID           *string `json:"group_id,omitempty"`
	OTID              *string `json:"otid,omitempty"`
	Extra             Extra   `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (m *ApprovalCreate) UnmarshalJSON(b []byte) error {
	type plain ApprovalCreate
	return unmarshalKeeping(b, (*plain)(m), &m.Extra)
}

// MarshalJSON writes unknown fields as well.
func (m ApprovalCreate) MarshalJSON() ([]byte, error) {
	type plain ApprovalCreate
	return marshalKeeping(plain(m), m.Extra)
}

// A ToolReturnCreate answers pending calls of tools of the client. Its type is
// mandatory: without it the server reads a message and answers 422.
type ToolReturnCreate struct {
	Type        string       `json:"type"` // tool_return
	ToolReturns []ToolReturn `json:"tool_returns"`
	GroupID     *string      `json:"group_id,omitempty"`
	OTID        *string      `json:"otid,omitempty"`
	Extra       Extra        `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (m *ToolReturnCreate) UnmarshalJSON(b []byte) error {
	type plain ToolReturnCreate
	return unmarshalKeeping(b, (*plain)(m), &m.Extra)
}

// MarshalJSON writes unknown fields as well.
func (m ToolReturnCreate) MarshalJSON() ([]byte, error) {
	type plain ToolReturnCreate
	return marshalKeeping(plain(m), m.Extra)
}

// A ClientTool is a tool that the caller runs.
type ClientTool struct {
	Name        string  `json:"name"`
	Description *string `json:"description,omitempty"`
	// Parameters is a JSON schema, kept as text: the order of its keys reaches the
	// prompt.
	Parameters json.RawMessage `json:"parameters,omitempty"`
	Extra      Extra           `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (t *ClientTool) UnmarshalJSON(b []byte) error {
	type plain ClientTool
	return unmarshalKeeping(b, (*plain)(t), &t.Extra)
}

// MarshalJSON writes unknown fields as well.
func (t ClientTool) MarshalJSON() ([]byte, error) {
	type plain ClientTool
	return marshalKeeping(plain(t), t.Extra)
}

// A ClientSkill is a skill that the caller offers. The native path ignores it.
type ClientSkill struct {
	Name        string  `json:"name"`
	Description *string `json:"description,omitempty"`
	Location    *string `json:"location,omitempty"`
	Extra       Extra   `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (t *ClientSkill) UnmarshalJSON(b []byte) error {
	type plain ClientSkill
	return unmarshalKeeping(b, (*plain)(t), &t.Extra)
}

// MarshalJSON writes unknown fields as well.
func (t ClientSkill) MarshalJSON() ([]byte, error) {
	type plain ClientSkill
	return marshalKeeping(plain(t), t.Extra)
}
