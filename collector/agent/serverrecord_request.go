package agent

import (
	"bytes"
	"strings"

	"github.com/rollout-rl/rollout/collector/letta"
)

// sentInput returns the messages of the request that started the run, as this package would send
// them. The result client is true if a message contains the result of a client tool or a denial.
func (m *runRecord) sentInput() (messages letta.InputMessages, client bool) {
	if len(m.messages) == 0 {
		return nil, false
	}
	switch first := &m.messages[0]; first.Type {
	case letta.TypeUser:
		return letta.InputMessages{letta.UserText(first.Content.String())}, false
	case letta.TypeApprovalResponse:
		answer, client := approvalInput(first.Approvals)
		return letta.InputMessages{answer}, client
	default:
		return nil, false
	}
}

// request returns the request of the run, as far as the server stored it, and the number of its
// stored messages.
func (m *runRecord) request() (*letta.LettaRequest, int) {
	r := new(letta.LettaRequest)
	for i := range m.messages {
		switch s := &m.messages[i]; s.Type {
		case letta.TypeUser:
			r.Messages = append(r.Messages, letta.UserText(s.Content.String()))
		case letta.TypeApprovalResponse:
			answer, _ := approvalInput(s.Approvals)
			r.Messages = append(r.Messages, answer)
		default:
			return r, i
		}
	}
	return r, len(m.messages)
}

// approvalInput converts the stored answers to pending calls into the message that the client sent.
func approvalInput(stored []letta.Approval) (message letta.InputMessage, client bool) {
	var returns []letta.ToolResult
	var answers []letta.Answer
	for i := range stored {
		switch a := &stored[i]; a.Type {
		case "tool":
			r := letta.ToolResult{
				Type: "tool", ToolReturn: letta.TextOf(a.Content.Text), Status: a.Status,
				ToolCallID: a.ToolCallID, Stdout: a.Stdout, Stderr: a.Stderr,
			}
			switch text := a.JSON.Member("tool_return"); {
			case text.IsNull():
				r.ToolReturn = nil
			case !strings.HasPrefix(string(text), `"`):
				r.ToolReturn = letta.Input(text) // a list of parts, kept unchanged
			}
			returns, client = append(returns, r), true
			answers = append(answers, &r)
		case "approval":
			d := &letta.ApprovalReturn{Type: "approval", ToolCallID: a.ToolCallID, Approve: a.Approve}
			if a.Reason != "" {
				d.Reason = &a.Reason
			}
			client = client || !a.Approve
			answers = append(answers, d)
		}
	}
	if len(returns) == len(stored) {
		return &letta.ToolReturnCreate{Type: "tool_return", ToolReturns: returns}, client
	}
	return &letta.ApprovalCreate{Type: "approval", Approvals: answers}, client
}

func sameInput(a, b letta.InputMessages) bool {
	x, errX := letta.Marshal(a)
	y, errY := letta.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
