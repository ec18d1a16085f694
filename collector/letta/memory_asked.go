package letta

import (
	"bytes"
)

// asked are the messages of the request that made the run, as this package would
// send them, and whether one holds a result or a refusal of this side.
func (m *memory) asked() (messages InputMessages, client bool) {
	for _, msg := range m.messages {
		switch msg := msg.(type) {
		case *UserMessage:
			return InputMessages{UserText(msg.Content.String())}, false
		case *ApprovalResponseMessage:
			answer, client := msg.asInput()
			return InputMessages{answer}, client
		default:
			return nil, false
		}
	}
	return nil, false
}

// asInput is the message that the server stored as an answer to pending calls.
func (m *ApprovalResponseMessage) asInput() (message InputMessage, client bool) {
	var returns []ToolReturn
	for _, a := range m.Approvals {
		switch a := a.(type) {
		case *ToolReturn:
			returns, client = append(returns, *a), true
		case *ApprovalReturn:
			client = client || !a.Approve
		}
	}
	if len(returns) == len(m.Approvals) {
		return &ToolReturnCreate{Type: "tool_return", ToolReturns: returns}, client
	}
	return &ApprovalCreate{Type: "approval", Approvals: m.Approvals}, client
}

// sameInput says that what was sent is what would be sent now.
func sameInput(a, b InputMessages) bool {
	x, errX := marshalText(a)
	y, errY := marshalText(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
