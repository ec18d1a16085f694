package agent

import (
	"encoding/json"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/record"
)

// TestAnswerWithoutOTID rebuilds an answer whose stored messages have no otid. The call takes the
// otid of the text before it and must still be valid JSON.
func TestAnswerWithoutOTID(t *testing.T) {
	t.Parallel()
	stored, err := letta.ReadList[letta.Message](`[
		{"message_type":"assistant_message","id":"message-1","step_id":"step-1","content":"let me see"},
		{"message_type":"tool_call_message","id":"message-1","step_id":"step-1","otid":"b","tool_calls":[]},
		{"message_type":"assistant_message","id":"message-2","step_id":"step-2","content":"done"}]`)
	if err != nil {
		t.Fatal(err)
	}
	m := &runRecord{steps: []letta.Step{{ID: "step-1"}, {ID: "step-2"}}, messages: stored}
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
		stored, err := letta.ReadList[letta.Approval](`[{"type":"tool","tool_call_id":"call-1","status":"success"` + result + `}]`)
		if err != nil {
			t.Fatal(err)
		}
		message, _ := approvalInput(stored)
		if sent := (letta.InputMessages{message}); !sameInput(sent, sent) {
			t.Errorf("with %q: it is not the same as itself", result)
		}
	}
}
