package agent

import (
	"testing"

	"github.com/rollout-rl/rollout/collector/letta"
)

// TestHidden checks that a client's result marks every later call that sees it, in any run.
func TestHidden(t *testing.T) {
	t.Parallel()
	answers := func(list ...letta.Approval) letta.Messages {
		return letta.Messages{{Type: letta.TypeApprovalResponse, Approvals: list}}
	}
	shown := []callRecord{{shown: []letta.TraceMessage{{Role: "user"}, {Role: "assistant"}, {Role: "tool", ToolCallID: "a"}}}}
	for _, test := range []struct {
		name        string
		before, own letta.Messages
		want        bool
	}{
		{"nothing was asked", nil, nil, false},
		{"the client's", nil, answers(letta.Approval{ToolReturn: letta.ToolReturn{Type: "tool", ToolCallID: "a"}}), true},
		{"the client's, earlier", answers(letta.Approval{ToolReturn: letta.ToolReturn{Type: "tool", ToolCallID: "a"}}), nil, true},
		{"denied", nil, answers(letta.Approval{ToolReturn: letta.ToolReturn{Type: "approval", ToolCallID: "a"}}), true},
		{"approved", answers(letta.Approval{ToolReturn: letta.ToolReturn{Type: "approval", ToolCallID: "a"}, Approve: true}), nil, false},
		{"not shown any more", answers(letta.Approval{ToolReturn: letta.ToolReturn{Type: "tool", ToolCallID: "b"}}), nil, false},
	} {
		m := &runRecord{messages: test.own}
		if got := m.sawEmptyResult(test.before, shown); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}
