package agent

import (
	"bytes"

	"github.com/rollout-rl/rollout/collector/letta"
)

// asked are the messages of the request that made the run, as this package would
// send them, and whether one holds a result or a refusal of this side.
func (m *memory) asked() (messages letta.InputMessages, client bool) {
	for _, msg := range m.messages {
		switch msg := msg.(type) {
		case *letta.UserMessage:
			return letta.InputMessages{letta.UserText(msg.Content.String())}, false
		case *letta.ApprovalResponseMessage:
			answer, client := asInput(msg)
			return letta.InputMessages{answer}, client
		default:
			return nil, false
		}
	}
	return nil, false
}

// asInput is the message that the server stored as an answer to pending calls.
func asInput(m *letta.ApprovalResponseMessage) (message letta.InputMessage, client bool) {
	var returns []letta.ToolReturn
	for _, a := range m.Approvals {
		switch a := a.(type) {
		case *letta.ToolReturn:
			returns, client = append(returns, *a), true
		case *letta.ApprovalReturn:
			client = client || !a.Approve
		}
	}
	if len(returns) == len(m.Approvals) {
		return &letta.ToolReturnCreate{Type: "tool_return", ToolReturns: returns}, client
	}
	return &letta.ApprovalCreate{Type: "approval", Approvals: m.Approvals}, client
}

// sameInput says that what was sent is what would be sent now.
func sameInput(a, b letta.InputMessages) bool {
	x, errX := letta.Marshal(a)
	y, errY := letta.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
