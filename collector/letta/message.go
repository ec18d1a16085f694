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

// Messages are messages in the order of the server.
type Messages []Message

// A Message is a message as the server sent it. Type says which of the fields behind the
// common ones it has; the others are empty. A message of a kind that this package does
// not know has the common ones.
//
// Source: schemas/letta_message.py, and the published schemas of the messages.
type Message struct {
	// JSON is the whole message.
	JSON RawJSON

	Type     MessageType
	ID       string
	Date     Time
	Name     string
	OTID     string
	SenderID string
	// StepID joins the message to the call that made it. After an approval the
	// return carries the step of the call, which is one of an earlier server run.
	StepID string
	IsErr  bool
	SeqID  *int64
	// RunID is the only place where an answer names its server run.
	RunID string

	// Content is the text of a system message, memory blocks and metadata included; what
	// the assistant said; or a message of the user as the server stores it, of which one
	// whose text is JSON with the type system_alert is the sign of a compaction.
	Content Content

	// Reasoning is what the model thought. The messages of a step show what the assistant
	// said in this form too.
	Reasoning string
	Source    string // reasoner_model, non_reasoner_model
	Signature string
	// State says why a hidden reasoning message does not show what the model thought:
	// redacted, omitted.
	State           string
	HiddenReasoning string

	// ToolCalls are the calls of a tool call message, which the server runs, or of an
	// approval request, which wait for the client: for a decision, or for the result of a
	// tool of its own. The answer that ends with such a request has the stop reason
	// requires_approval.
	ToolCalls []ToolCall
	// ToolReturns are the results of the calls of one step. Their order need not be that of
	// the calls. The text is the bare result; the model saw it packaged, as turns have it.
	ToolReturns []ToolReturn

	// Approvals are what the client answered. Approve, ApprovalRequestID and Reason are the
	// deprecated form.
	Approvals         []Approval
	Approve           *bool
	ApprovalRequestID string
	Reason            string

	// Summary stands for what a compaction removed from the context.
	Summary         string
	CompactionStats *CompactionStats

	// EventType and EventData tell of an event, such as a compaction. It is not part of the
	// context.
	EventType string // compaction
	EventData RawJSON
}

// read reads a message. Deprecated members repeat the first element of the lists that took
// their place. What they say counts where there is no such list.
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
		case "sender_id":
			s.orEmpty(&m.SenderID)
		case "step_id":
			s.orEmpty(&m.StepID)
		case "is_err":
			s.orFalse(&m.IsErr)
		case "seq_id":
			s.orNoInteger(&m.SeqID)
		case "run_id":
			s.orEmpty(&m.RunID)
		default:
			switch MessageType(kind) {
			case TypeSystem, TypeUser, TypeAssistant:
				if name == "content" {
					m.Content.read(s)
				}
			case TypeReasoning:
				m.readReasoning(s, name)
			case TypeHiddenReasoning:
				m.readHidden(s, name)
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
			case TypeSummary:
				m.readSummary(s, name)
			case TypeEvent:
				switch name {
				case "event_type":
					s.orEmpty(&m.EventType)
				case "event_data":
					m.EventData = s.raw()
				}
			}
		}
	})
	m.Type, m.JSON = MessageType(kind), s.since(from)
	switch {
	case s.err != nil:
	case len(m.ToolCalls) == 0 && !old.callJSON.IsNull():
		m.ToolCalls = []ToolCall{old.call}
		s.failed(old.callErr, "tool_call")
	case len(m.ToolReturns) == 0 && old.result.ToolCallID != "":
		old.result.Type = "tool"
		m.ToolReturns = []ToolReturn{old.result}
		s.failed(old.textErr, "tool_return")
	}
}

// deprecated is what the deprecated members of a message say. They may be anything where
// the lists in their place are there.
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

func (m *Message) readReasoning(s *scanner, name string) {
	switch name {
	case "source":
		s.orEmpty(&m.Source)
	case "reasoning":
		s.orEmpty(&m.Reasoning)
	case "signature":
		s.orEmpty(&m.Signature)
	}
}

func (m *Message) readHidden(s *scanner, name string) {
	switch name {
	case "state":
		s.orEmpty(&m.State)
	case "hidden_reasoning":
		s.orEmpty(&m.HiddenReasoning)
	}
}

func (m *Message) readAnswer(s *scanner, name string) {
	switch name {
	case "approvals":
		listOf(s, &m.Approvals)
	case "approve":
		s.needBool(&m.Approve)
	case "approval_request_id":
		s.needText(&m.ApprovalRequestID)
	case "reason":
		s.orEmpty(&m.Reason)
	}
}

func (m *Message) readSummary(s *scanner, name string) {
	switch name {
	case "summary":
		s.orEmpty(&m.Summary)
	case "compaction_stats":
		object(s, &m.CompactionStats)
	}
}

// CompactionStats says what a compaction did.
type CompactionStats struct {
	JSON                RawJSON
	Trigger             string
	ContextTokensBefore *int64
	ContextTokensAfter  *int64
	ContextWindow       int64
	MessagesCountBefore int64
	MessagesCountAfter  int64
}

func (c *CompactionStats) read(s *scanner) {
	from := s.start()
	for name := range s.members {
		switch name {
		case "trigger":
			s.orEmpty(&c.Trigger)
		case "context_tokens_before":
			s.orNoInteger(&c.ContextTokensBefore)
		case "context_tokens_after":
			s.orNoInteger(&c.ContextTokensAfter)
		case "context_window":
			s.orZero(&c.ContextWindow)
		case "messages_count_before":
			s.orZero(&c.MessagesCountBefore)
		case "messages_count_after":
			s.orZero(&c.MessagesCountAfter)
		}
	}
	c.JSON = s.since(from)
}
