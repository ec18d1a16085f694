package prompt

import (
	"slices"

	"github.com/rollout-rl/rollout/collector/letta"
)

// A decision is the outcome of a call that waited for the client.
type decision uint8

const (
	decisionOpen     decision = iota + 1 // the client has not answered
	decisionClient                       // the client returned the result
	decisionApproved                     // the client approved the call, and the server ran it
	decisionDenied                       // the client denied the call
)

// decisions maps the tool call ids in approval requests to decisions. It does not contain other
// calls, because the server ran them without waiting for the client.
type decisions map[string]decision

// all reports whether every call waited for the client.
func (d decisions) all(calls []call) bool {
	return !slices.ContainsFunc(calls, func(c call) bool { return d[c.id] == 0 })
}

// hidden reports whether the model saw an empty result for the call. The server's adapter ignores
// results from the client and the reason for a denial.
func (d decisions) hidden(callID string) bool {
	return d[callID] == decisionClient || d[callID] == decisionDenied
}

// requested marks the calls of the approval requests in messages as open, unless they already have
// a decision.
func (d decisions) requested(messages letta.Messages) {
	for i := range messages {
		if messages[i].Type != letta.TypeApprovalRequest {
			continue
		}
		for _, c := range messages[i].ToolCalls {
			if d[c.ToolCallID] == 0 {
				d[c.ToolCallID] = decisionOpen
			}
		}
	}
}

// decide sets the decision for every call of the approval request that has the given message id.
func (d decisions) decide(messages letta.Messages, id string, what decision) {
	for i := range messages {
		if m := &messages[i]; m.Type == letta.TypeApprovalRequest && m.ID == id {
			for _, c := range m.ToolCalls {
				d[c.ToolCallID] = what
			}
		}
	}
}

// stored adds the client's answers that the stored messages of earlier requests contain.
func (d decisions) stored(messages letta.Messages) {
	for i := range messages {
		m := &messages[i]
		if m.Type != letta.TypeApprovalResponse {
			continue
		}
		for k := range m.Approvals {
			switch a := &m.Approvals[k]; a.Type {
			case "tool":
				d[a.ToolCallID] = decisionClient
			case "approval":
				d[a.ToolCallID] = decided(a.Approve)
			}
		}
		if m.Approve != nil && len(m.Approvals) == 0 {
			d.decide(messages, m.ApprovalRequestID, decided(*m.Approve))
		}
	}
}

// answered adds the client's answers that a request contains. The deprecated form of an answer
// names a message instead of a call. For this form, answered searches for the message in the
// parameter before, which contains all earlier sends.
func (d decisions) answered(request *letta.LettaRequest, before []send) {
	for _, m := range request.Messages {
		switch m := m.(type) {
		case *letta.ToolReturnCreate:
			for i := range m.ToolReturns {
				d[m.ToolReturns[i].ToolCallID] = decisionClient
			}
		case *letta.ApprovalCreate:
			for _, p := range m.Approvals {
				switch p := p.(type) {
				case *letta.ToolResult:
					d[p.ToolCallID] = decisionClient
				case *letta.ApprovalReturn:
					d[p.ToolCallID] = decided(p.Approve)
				}
			}
			if m.Approve == nil || m.ApprovalRequestID == nil {
				continue
			}
			for i := range before {
				d.decide(before[i].messages, *m.ApprovalRequestID, decided(*m.Approve))
			}
		}
	}
}

func decided(approve bool) decision {
	if approve {
		return decisionApproved
	}
	return decisionDenied
}
