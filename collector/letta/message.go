package letta

// A MessageType is the kind of a message. Values that this package does not know
// are kept.
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

// A Message is a pointer to one of the …Message types, or to an UnknownMessage.
type Message interface {
	// Head is what all messages have.
	Head() *MessageHead
}

// A MessageHead is what all messages have. The server prints every field, null
// where it has nothing to say.
type MessageHead struct {
	ID          string      `json:"id"`
	Date        Time        `json:"date"`
	Name        *string     `json:"name"`
	MessageType MessageType `json:"message_type"`
	OTID        *string     `json:"otid"`
	SenderID    *string     `json:"sender_id"`
	// StepID joins the message to the call that made it. After an approval the
	// return carries the step of the call, which is one of an earlier server run.
	StepID *string `json:"step_id"`
	IsErr  *bool   `json:"is_err"`
	SeqID  *int64  `json:"seq_id"`
	// RunID is the only place where an answer names its server run.
	RunID *string `json:"run_id"`
}

// Head returns itself.
func (h *MessageHead) Head() *MessageHead { return h }

// Messages are messages in the order of the server.
type Messages []Message

// UnmarshalJSON chooses the kind of each message by its message_type.
func (m *Messages) UnmarshalJSON(b []byte) error {
	list, err := unmarshalUnion(b, newMessage)
	*m = list
	return err
}

func newMessage(data []byte) (Message, error) {
	kind, err := kindOf(data, "message_type")
	if err != nil {
		return nil, err
	}
	switch MessageType(kind) {
	case TypeSystem:
		return new(SystemMessage), nil
	case TypeUser:
		return new(UserMessage), nil
	case TypeAssistant:
		return new(AssistantMessage), nil
	case TypeReasoning:
		return new(ReasoningMessage), nil
	case TypeHiddenReasoning:
		return new(HiddenReasoningMessage), nil
	case TypeToolCall:
		return new(ToolCallMessage), nil
	case TypeToolReturn:
		return new(ToolReturnMessage), nil
	case TypeApprovalRequest:
		return new(ApprovalRequestMessage), nil
	case TypeApprovalResponse:
		return new(ApprovalResponseMessage), nil
	case TypeSummary:
		return new(SummaryMessage), nil
	case TypeEvent:
		return new(EventMessage), nil
	}
	return new(UnknownMessage), nil
}

// A SystemMessage is the system text, memory blocks and metadata included.
type SystemMessage struct {
	MessageHead
	Content Content `json:"content"`
	Extra   Extra   `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (m *SystemMessage) UnmarshalJSON(b []byte) error {
	type plain SystemMessage
	return unmarshalKeeping(b, (*plain)(m), &m.Extra)
}

// MarshalJSON writes unknown fields as well.
func (m SystemMessage) MarshalJSON() ([]byte, error) {
	type plain SystemMessage
	return marshalKeeping(plain(m), m.Extra)
}

// A UserMessage is a message of the user as the server stores it. One whose
// text is JSON with the type system_alert is the sign of a compaction.
type UserMessage struct {
	MessageHead
	Content Content `json:"content"`
	Extra   Extra   `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (m *UserMessage) UnmarshalJSON(b []byte) error {
	type plain UserMessage
	return unmarshalKeeping(b, (*plain)(m), &m.Extra)
}

// MarshalJSON writes unknown fields as well.
func (m UserMessage) MarshalJSON() ([]byte, error) {
	type plain UserMessage
	return marshalKeeping(plain(m), m.Extra)
}

// An AssistantMessage is what the model said.
type AssistantMessage struct {
	MessageHead
	Content Content `json:"content"`
	Extra   Extra   `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (m *AssistantMessage) UnmarshalJSON(b []byte) error {
	type plain AssistantMessage
	return unmarshalKeeping(b, (*plain)(m), &m.Extra)
}

// MarshalJSON writes unknown fields as well.
func (m AssistantMessage) MarshalJSON() ([]byte, error) {
	type plain AssistantMessage
	return marshalKeeping(plain(m), m.Extra)
}

// A ReasoningMessage is what the model thought. The messages of a step show what
// the assistant said in this form too.
type ReasoningMessage struct {
	MessageHead
	Source    *string `json:"source"` // reasoner_model, non_reasoner_model
	Reasoning string  `json:"reasoning"`
	Signature *string `json:"signature"`
	Extra     Extra   `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (m *ReasoningMessage) UnmarshalJSON(b []byte) error {
	type plain ReasoningMessage
	return unmarshalKeeping(b, (*plain)(m), &m.Extra)
}

// MarshalJSON writes unknown fields as well.
func (m ReasoningMessage) MarshalJSON() ([]byte, error) {
	type plain ReasoningMessage
	return marshalKeeping(plain(m), m.Extra)
}

// A HiddenReasoningMessage stands for thinking that is not shown.
type HiddenReasoningMessage struct {
	MessageHead
	State           string  `json:"state"` // redacted, omitted
	HiddenReasoning *string `json:"hidden_reasoning"`
	Extra           Extra   `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (m *HiddenReasoningMessage) UnmarshalJSON(b []byte) error {
	type plain HiddenReasoningMessage
	return unmarshalKeeping(b, (*plain)(m), &m.Extra)
}

// MarshalJSON writes unknown fields as well.
func (m HiddenReasoningMessage) MarshalJSON() ([]byte, error) {
	type plain HiddenReasoningMessage
	return marshalKeeping(plain(m), m.Extra)
}

// An UnknownMessage is a message of a kind that this package does not know. All
// its other fields are in Extra.
type UnknownMessage struct {
	MessageHead
	Extra Extra `json:"-"`
}

// UnmarshalJSON keeps unknown fields.
func (m *UnknownMessage) UnmarshalJSON(b []byte) error {
	type plain UnknownMessage
	return unmarshalKeeping(b, (*plain)(m), &m.Extra)
}

// MarshalJSON writes unknown fields as well.
func (m UnknownMessage) MarshalJSON() ([]byte, error) {
	type plain UnknownMessage
	return marshalKeeping(plain(m), m.Extra)
}
