package letta

import "reflect"

// A MessageType is the kind of a message. A newer server can send unknown kinds.
type MessageType string

// The kinds of messages. Source: schemas/letta_message.py.
const (
	TypeSystem           MessageType = "system_message"
	TypeUser             MessageType = "user_message"
	TypeAssistant        MessageType = "assistant_message"
	TypeReasoning        MessageType = "reasoning_message"
	TypeHiddenReasoning  MessageType = "hidden_reasoning_message"
	TypeToolCall         MessageType = "tool_call_message"
	TypeToolReturn       MessageType = "tool_return_message"
	TypeApprovalRequest  MessageType = "approval_request_message"
	TypeApprovalResponse MessageType = "approval_response_message"
	TypeSummary          MessageType = "summary_message"
	TypeEvent            MessageType = "event_message"
)

// Messages is a list of messages in the server's order.
type Messages []Message

// A Message is a message from the server. Type determines which of the fields after RunID are set.
// If the type is unknown, none of these fields is set.
//
// Source: schemas/letta_message.py, and the published schemas of the messages.
type Message struct {
	// JSON is the JSON text of the message.
	JSON RawJSON

	Type MessageType `letta:"message_type,kind"`
	ID   string      `letta:"id,loose"`
	Date Time        `letta:"date,loose"`
	Name string      `letta:"name,loose"`
	OTID string      `letta:"otid,loose"`
	// StepID is the id of the step that created the message. For a tool return after an approval,
	// StepID is the id of the step that made the tool call. That step belongs to an earlier server
	// run.
	StepID string `letta:"step_id,loose"`
	// RunID is the id of the server run. No other field of an answer names the server run.
	RunID string `letta:"run_id,loose"`

	// Content is a user message as stored, the assistant's text, or a system message with memory
	// blocks and metadata. A user message whose text is JSON with the type system_alert indicates a
	// compaction.
	Content Content `letta:"content" kinds:"system_message user_message assistant_message"`

	// Reasoning is the model's reasoning. In a list of the messages of a step, it can also be
	// assistant text.
	Reasoning string `letta:"reasoning,loose" kinds:"reasoning_message"`

	// ToolCalls are the calls in the message. The server runs the calls in a tool call message. The
	// calls in an approval request wait for the client's decision or tool result. If an answer ends
	// with an approval request, its stop reason is requires_approval.
	ToolCalls []ToolCall `letta:"tool_calls,one" kinds:"tool_call_message approval_request_message"`
	// ToolReturns are the results of the calls in one step, not necessarily in the order of the
	// calls. The text of a ToolReturn is only the result. The model saw the result wrapped in JSON,
	// as in turns.
	ToolReturns []ToolReturn `letta:"tool_returns" kinds:"tool_return_message"`

	// Approvals are the client's answers. The next two fields are the deprecated form of an answer.
	Approvals         []Approval `letta:"approvals" kinds:"approval_response_message"`
	Approve           *bool      `letta:"approve" kinds:"approval_response_message"`
	ApprovalRequestID string     `letta:"approval_request_id" kinds:"approval_response_message"`
}

func (m *Message) read(s *scanner) {
	start := s.Mark()
	s.object(reflect.ValueOf(m).Elem(), planOf(reflect.TypeFor[Message]()))
	calls := m.Type == TypeToolCall || m.Type == TypeApprovalRequest
	switch {
	case s.Err() != nil:
	case calls && len(m.ToolCalls) == 0, m.Type == TypeToolReturn && len(m.ToolReturns) == 0:
		s.Return(start)
		m.readDeprecated(s)
	}
}

// readDeprecated reads the deprecated members. Lists have replaced these members, which now repeat
// the first element of the lists.
func (m *Message) readDeprecated(s *scanner) {
	if m.Type != TypeToolReturn {
		var old struct {
			Call *ToolCall `letta:"tool_call"`
		}
		if into(s, &old); old.Call != nil {
			m.ToolCalls = []ToolCall{*old.Call}
		}
		return
	}
	start := s.Mark()
	var old struct {
		ToolCallID string   `letta:"tool_call_id"`
		Status     string   `letta:"status"`
		Stdout     []string `letta:"stdout,loose"`
		Stderr     []string `letta:"stderr,loose"`
	}
	if into(s, &old); old.ToolCallID == "" || s.Err() != nil {
		return // without an id, the member tool_return can have any type
	}
	s.Return(start)
	var text struct {
		Return string `letta:"tool_return"`
	}
	into(s, &text)
	m.ToolReturns = []ToolReturn{{
		Type: "tool", Content: Content{Text: text.Return}, Status: old.Status, ToolCallID: old.ToolCallID, Stdout: old.Stdout, Stderr: old.Stderr,
	}}
}
