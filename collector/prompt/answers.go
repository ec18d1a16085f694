package prompt

import (
	"github.com/rollout-rl/rollout/collector/letta"
)

// An answer says what became of a call that had to wait for the client.
type answer uint8

const (
	answerOpen     answer = iota + 1 // not answered yet
	answerClient                     // the client made the result
	answerApproved                   // the server ran it after the client's approval
	answerDenied                     // the client refused it
)

// answers holds, by tool call id, every call that was ever in an approval request.
// A call that is not in it is an ordinary one of the server.
type answers map[string]answer

// all reports whether every call had to wait for the client.
func (a answers) all(calls []call) bool {
	for i := range calls {
		if a[calls[i].id] == 0 {
			return false
		}
	}
	return true
}

// hidden reports whether the model saw the result of the call as empty text: the
// adapter does not read what a client made, nor why it refused.
func (a answers) hidden(callID string) bool {
	return a[callID] == answerClient || a[callID] == answerDenied
}

// requested notes the calls of the approval requests among messages.
func (a answers) requested(messages letta.Messages) {
	for i := range messages {
		if messages[i].Type != letta.TypeApprovalRequest {
			continue
		}
		for _, c := range messages[i].ToolCalls {
			if a[c.ToolCallID] == 0 {
				a[c.ToolCallID] = answerOpen
			}
		}
	}
}

// answered notes what the client answered in a request. before holds the messages
// of the answers until then, for the deprecated form that names a message.
func (a answers) answered(request *letta.LettaRequest, before letta.Messages) {
	for _, m := range request.Messages {
		switch m := m.(type) {
		case *letta.ToolReturnCreate:
			for i := range m.ToolReturns {
				a[m.ToolReturns[i].ToolCallID] = answerClient
			}
		case *letta.ApprovalCreate:
			for _, p := range m.Approvals {
				switch p := p.(type) {
				case *letta.ToolResult:
					a[p.ToolCallID] = answerClient
				case *letta.ApprovalReturn:
					a[p.ToolCallID] = decided(p.Approve)
				}
			}
			if m.Approve == nil || m.ApprovalRequestID == nil {
				continue
			}
			for i := range before {
				if r := &before[i]; r.Type == letta.TypeApprovalRequest && r.ID == *m.ApprovalRequestID {
					for _, c := range r.ToolCalls {
						a[c.ToolCallID] = decided(*m.Approve)
					}
				}
			}
		}
	}
}

func decided(approve bool) answer {
	if approve {
		return answerApproved
	}
	return answerDenied
}
