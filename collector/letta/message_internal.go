package letta

import "encoding/json"

// An InternalMessage is a message as the server's database holds it. Only the
// deprecated messages of a Step have this form, and 0.16.7 leaves them empty.
type InternalMessage struct {
	CreatedByID     *string            `json:"created_by_id"`
	LastUpdatedByID *string            `json:"last_updated_by_id"`
	CreatedAt       *Time              `json:"created_at"`
	UpdatedAt       *Time              `json:"updated_at"`
	ID              string             `json:"id"`
	AgentID         *string            `json:"agent_id"`
	Model           *string            `json:"model"`
	Role            string             `json:"role"` // assistant, user, tool, function, system, approval, summary
	Content         Content            `json:"content"`
	Name            *string            `json:"name"`
	ToolCalls       []InternalToolCall `json:"tool_calls"`
	ToolCallID      *string            `json:"tool_call_id"`
	StepID          *string            `json:"step_id"`
	RunID           *string            `json:"run_id"`
	OTID            *string            `json:"otid"`
	ToolReturns     []InternalReturn   `json:"tool_returns"`
	GroupID         *string            `json:"group_id"`
	SenderID        *string            `json:"sender_id"`
	BatchItemID     *string            `json:"batch_item_id"`
	ConversationID  *string            `json:"conversation_id"`
	IsErr           *bool              `json:"is_err"`

	ApprovalRequestID *string `json:"approval_request_id"`
	Approve           *bool   `json:"approve"`
	DenialReason      *string `json:"denial_reason"`
	// Approvals holds decisions, and returns of the internal form.
	Approvals []json.RawMessage `json:"approvals"`

	Extra Extra `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (m *InternalMessage) UnmarshalJSON(b []byte) error {
	type plain InternalMessage
	return unmarshalKeeping(b, (*plain)(m), &m.Extra)
}

// MarshalJSON writes unknown fields as well.
func (m InternalMessage) MarshalJSON() ([]byte, error) {
	type plain InternalMessage
	return marshalKeeping(plain(m), m.Extra)
}

// An InternalToolCall is a call in the OpenAI form.
type InternalToolCall struct {
	ID       string           `json:"id"`
	Type     string           `json:"type"` // function
	Function InternalFunction `json:"function"`
	Extra    Extra            `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (c *InternalToolCall) UnmarshalJSON(b []byte) error {
	type plain InternalToolCall
	return unmarshalKeeping(b, (*plain)(c), &c.Extra)
}

// MarshalJSON writes unknown fields as well.
func (c InternalToolCall) MarshalJSON() ([]byte, error) {
	type plain InternalToolCall
	return marshalKeeping(plain(c), c.Extra)
}

// An InternalFunction is the name and the arguments of a call, both text.
type InternalFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
	Extra     Extra  `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (f *InternalFunction) UnmarshalJSON(b []byte) error {
	type plain InternalFunction
	return unmarshalKeeping(b, (*plain)(f), &f.Extra)
}

// MarshalJSON writes unknown fields as well.
func (f InternalFunction) MarshalJSON() ([]byte, error) {
	type plain InternalFunction
	return marshalKeeping(plain(f), f.Extra)
}

// An InternalReturn is the result of a call.
type InternalReturn struct {
	ToolCallID   json.RawMessage `json:"tool_call_id"`
	Status       string          `json:"status"` // success, error
	Stdout       []string        `json:"stdout"`
	Stderr       []string        `json:"stderr"`
	FuncResponse Content         `json:"func_response"`
	Extra        Extra           `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (r *InternalReturn) UnmarshalJSON(b []byte) error {
	type plain InternalReturn
	return unmarshalKeeping(b, (*plain)(r), &r.Extra)
}

// MarshalJSON writes unknown fields as well.
func (r InternalReturn) MarshalJSON() ([]byte, error) {
	type plain InternalReturn
	return marshalKeeping(plain(r), r.Extra)
}
