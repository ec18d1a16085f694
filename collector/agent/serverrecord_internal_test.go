package agent

import (
	"encoding/json"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/record"
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
		{"the client's", nil, answers(letta.Approval{Type: "tool", ToolCallID: "a"}), true},
		{"the client's, earlier", answers(letta.Approval{Type: "tool", ToolCallID: "a"}), nil, true},
		{"denied", nil, answers(letta.Approval{Type: "approval", ToolCallID: "a"}), true},
		{"approved", answers(letta.Approval{Type: "approval", ToolCallID: "a", Approve: true}), nil, false},
		{"not shown any more", answers(letta.Approval{Type: "tool", ToolCallID: "b"}), nil, false},
	} {
		m := &runRecord{messages: test.own}
		if got := m.sawEmptyResult(test.before, shown); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

// TestAnswerWithoutOTID rebuilds an answer whose stored messages have no otid. The call takes the
// otid of the text before it and must still be valid JSON.
func TestAnswerWithoutOTID(t *testing.T) {
	t.Parallel()
	stored, err := letta.Read[letta.Messages](`[
		{"message_type":"assistant_message","id":"message-1","step_id":"step-1","content":"let me see"},
		{"message_type":"tool_call_message","id":"message-1","step_id":"step-1","otid":"b","tool_calls":[]},
		{"message_type":"assistant_message","id":"message-2","step_id":"step-2","content":"done"}]`)
	if err != nil {
		t.Fatal(err)
	}
	m := &runRecord{steps: []letta.Step{{ID: "step-1"}, {ID: "step-2"}}, messages: *stored}
	r := record.New(nil)
	r.Sends = []record.Send{{Request: &letta.LettaRequest{}, Response: &letta.LettaResponse{Messages: m.answer(0, true)}}}
	text, err := r.Conversed()
	if err != nil {
		t.Fatal(err)
	}
	var list []struct {
		OTID *string `json:"otid"`
	}
	if err := json.Unmarshal(text, &list); err != nil || len(list) != 2 || list[0].OTID != nil {
		t.Errorf("%v\n%s", err, text)
	}
}

// TestStoredResultWithoutText reads an answer to pending calls whose stored result has no text.
func TestStoredResultWithoutText(t *testing.T) {
	t.Parallel()
	for _, result := range []string{``, `,"tool_return":null`} {
		stored, err := letta.Read[[]letta.Approval](`[{"type":"tool","tool_call_id":"call-1","status":"success"` + result + `}]`)
		if err != nil {
			t.Fatal(err)
		}
		message, _ := approvalInput(*stored)
		if sent := (letta.InputMessages{message}); !sameInput(sent, sent) {
			t.Errorf("with %q: it is not the same as itself", result)
		}
	}
}
