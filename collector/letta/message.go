package letta

// A MessageType is the kind of a message. Unknown values are kept.
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

// Messages are messages in the server's order.
type Messages []Message

// A Message is a message from the server. Type determines which fields after the common ones are
// set. A message of an unknown kind has only the common ones.
//
// Source: schemas/letta_message.py, and the published schemas of the messages.
type Message struct {
	// JSON is the whole message.
	JSON RawJSON

	Type MessageType
	ID   string
	Date Time
	Name string
	OTID string
	// StepID is the step that made the message. After an approval, the tool return has the step
	// of the call, which belongs to an earlier server run.
	StepID string
	// RunID is the only field of an answer that names its server run.
	RunID string

	// Content is the text of a system message with memory blocks and metadata, the assistant's
	// text, or a user message as stored. A user message whose text is JSON with the type
	// system_alert is a sign of a compaction.
	Content Content

	// Reasoning is the model's reasoning. The messages of a step also show assistant texts here.
	Reasoning string

	// ToolCalls are the calls of a tool call message, which the server runs, or of an approval
	// request, which wait for the client's decision or tool result. The answer that ends with
	// such a request has the stop reason requires_approval.
	ToolCalls []ToolCall
	// ToolReturns are the results of the calls of one step, not necessarily in the order of the
	// calls. Their text is the bare result. The model saw it packaged, as in turns.
	ToolReturns []ToolReturn

	// Approvals are the client's answers. The next two fields are the deprecated form.
	Approvals         []Approval
	Approve           *bool
	ApprovalRequestID string
}

// read reads a message. Deprecated members repeat the first element of the lists that replaced
// them, and count only if there is no such list.
func (m *Message) read(s *scanner) {
	var old deprecated
	from := s.start()
	kind := s.union("message_type", func() { *m, old = Message{}, deprecated{} }, func(kind, name string) {
		switch name {
		case "id":
			s.orEmpty(&m.ID)
		case "date":
			orNoWord(s, &m.Date)
		case "name":
			s.orEmpty(&m.Name)
		case "otid":
			s.orEmpty(&m.OTID)
		case "step_id":
			s.orEmpty(&m.StepID)
		case "run_id":
			s.orEmpty(&m.RunID)
		default:
			switch MessageType(kind) {
			case TypeSystem, TypeUser, TypeAssistant:
				if name == "content" {
					m.Content.read(s)
				}
			case TypeReasoning:
				if name == "reasoning" {
					s.orEmpty(&m.Reasoning)
				}
			case TypeToolCall, TypeApprovalRequest:
				switch name {
				case "tool_call":
					old.readCall(s)
				case "tool_calls":
					s.toolCalls(&m.ToolCalls)
				}
			case TypeToolReturn:
				switch name {
				case "tool_return":
					old.readText(s)
				case "tool_returns":
					listOf(s, &m.ToolReturns)
				default:
					old.result.readField(s, name)
				}
			case TypeApprovalResponse:
				m.readAnswer(s, name)
			}
		}
	})
	m.Type, m.JSON = MessageType(kind), s.since(from)
	switch {
	case s.Err() != nil:
	case len(m.ToolCalls) == 0 && !old.callJSON.IsNull():
		m.ToolCalls = []ToolCall{old.call}
		s.failed(old.callErr, "tool_call")
	case len(m.ToolReturns) == 0 && old.result.ToolCallID != "":
		old.result.Type = "tool"
		m.ToolReturns = []ToolReturn{old.result}
		s.failed(old.textErr, "tool_return")
	}
}

// deprecated holds the deprecated members. Their values do not matter if the replacing lists
// exist.
type deprecated struct {
	call     ToolCall
	callJSON RawJSON
	callErr  error
	result   ToolReturn
	textErr  error
}

func (d *deprecated) readCall(s *scanner) {
	d.call, d.callErr = ToolCall{}, nil
	d.callJSON = s.aside(func() { d.call.read(s) }, &d.callErr)
}

func (d *deprecated) readText(s *scanner) {
	d.result.Content, d.textErr = Content{}, nil
	s.aside(func() { s.str(&d.result.Content.Text) }, &d.textErr)
}

func (m *Message) readAnswer(s *scanner, name string) {
	switch name {
	case "approvals":
		listOf(s, &m.Approvals)
	case "approve":
		s.needBool(&m.Approve)
	case "approval_request_id":
		s.needText(&m.ApprovalRequestID)
	}
}
