package letta

// An ApprovalRequestMessage asks the client: for a decision, or for the result of
// a tool of its own. The answer that ends with it has the stop reason
// requires_approval.
type ApprovalRequestMessage struct {
	MessageHead
	// ToolCall is deprecated: the first of ToolCalls.
	ToolCall  *ToolCall `json:"tool_call"`
	ToolCalls ToolCalls `json:"tool_calls"`
	Extra     Extra     `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (m *ApprovalRequestMessage) UnmarshalJSON(b []byte) error {
	type plain ApprovalRequestMessage
	return unmarshalKeeping(b, (*plain)(m), &m.Extra)
}

// MarshalJSON writes unknown fields as well.
func (m ApprovalRequestMessage) MarshalJSON() ([]byte, error) {
	type plain ApprovalRequestMessage
	return marshalKeeping(plain(m), m.Extra)
}

// Calls are the calls that wait for an answer, whichever field the server used.
func (m *ApprovalRequestMessage) Calls() []ToolCall { return callsOf(m.ToolCalls, m.ToolCall) }

// An ApprovalResponseMessage is what the client answered.
type ApprovalResponseMessage struct {
	MessageHead
	Approvals Approvals `json:"approvals"`
	// Approve, ApprovalRequestID and Reason are the deprecated form.
	Approve           *bool   `json:"approve"`
	ApprovalRequestID *string `json:"approval_request_id"`
	Reason            *string `json:"reason"`
	Extra             Extra   `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (m *ApprovalResponseMessage) UnmarshalJSON(b []byte) error {
	type plain ApprovalResponseMessage
	return unmarshalKeeping(b, (*plain)(m), &m.Extra)
}

// MarshalJSON writes unknown fields as well.
func (m ApprovalResponseMessage) MarshalJSON() ([]byte, error) {
	type plain ApprovalResponseMessage
	return marshalKeeping(plain(m), m.Extra)
}

// Approvals are the answers to pending calls.
type Approvals []Approval

// UnmarshalJSON chooses the kind of each answer by its type.
func (a *Approvals) UnmarshalJSON(b []byte) error {
	list, err := unmarshalUnion(b, newApproval)
	*a = list
	return err
}

// An Approval is an *ApprovalReturn, a *ToolReturn, or a *Raw.
type Approval interface{ approval() }

func (*ApprovalReturn) approval() {}
func (*ToolReturn) approval()     {}
func (*Raw) approval()            {}

func newApproval(data []byte) (Approval, error) {
	kind, err := kindOf(data, "type")
	if err != nil {
		return nil, err
	}
	switch kind {
	case "approval":
		return new(ApprovalReturn), nil
	case "tool":
		return new(ToolReturn), nil
	}
	return &Raw{Kind: kind}, nil
}

// An ApprovalReturn is a decision about one call.
type ApprovalReturn struct {
	Type       string  `json:"type"` // approval
	ToolCallID string  `json:"tool_call_id"`
	Approve    bool    `json:"approve"`
	Reason     *string `json:"reason"`
	Extra      Extra   `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (a *ApprovalReturn) UnmarshalJSON(b []byte) error {
	type plain ApprovalReturn
	return unmarshalKeeping(b, (*plain)(a), &a.Extra)
}

// MarshalJSON writes unknown fields as well.
func (a ApprovalReturn) MarshalJSON() ([]byte, error) {
	type plain ApprovalReturn
	return marshalKeeping(plain(a), a.Extra)
}
