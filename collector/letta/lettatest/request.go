package lettatest

import (
	"encoding/json"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta"
)

// Request decodes the body of a send. Like the server, it distinguishes messages by their type. It
// recognizes an approval without a type by its fields. Source: letta_request.py:129-144.
func Request(tb testing.TB, body []byte) *letta.LettaRequest {
	tb.Helper()
	var r struct {
		letta.LettaRequest
		Messages []json.RawMessage `json:"messages"`
	}
	decode(tb, body, &r)
	for _, raw := range r.Messages {
		var head struct {
			Type                                  string
			Approvals, Approve, ApprovalRequestID json.RawMessage
		}
		decode(tb, raw, &head)
		switch {
		case head.Type == "tool_return":
			m := new(letta.ToolReturnCreate)
			decode(tb, raw, m)
			r.LettaRequest.Messages = append(r.LettaRequest.Messages, m)
		case head.Type == "approval", head.Type == "" && (head.Approvals != nil || head.Approve != nil):
			r.LettaRequest.Messages = append(r.LettaRequest.Messages, approval(tb, raw))
		case head.Type == "message", head.Type == "":
			m := new(letta.MessageCreate)
			decode(tb, raw, m)
			r.LettaRequest.Messages = append(r.LettaRequest.Messages, m)
		default:
			tb.Fatalf("a message of type %q", head.Type)
		}
	}
	return &r.LettaRequest
}

func approval(tb testing.TB, raw json.RawMessage) *letta.ApprovalCreate {
	tb.Helper()
	var m struct {
		letta.ApprovalCreate
		Approvals []json.RawMessage `json:"approvals"`
	}
	decode(tb, raw, &m)
	for _, raw := range m.Approvals {
		var head struct{ Type string }
		decode(tb, raw, &head)
		var answer letta.Answer = new(letta.ToolResult)
		if head.Type == "approval" {
			answer = new(letta.ApprovalReturn)
		}
		decode(tb, raw, answer)
		m.ApprovalCreate.Approvals = append(m.ApprovalCreate.Approvals, answer)
	}
	return &m.ApprovalCreate
}

func decode(tb testing.TB, raw []byte, v any) {
	tb.Helper()
	if err := json.Unmarshal(raw, v); err != nil {
		tb.Fatalf("%v\n%.300s", err, raw)
	}
}

// Object uses read to decode an object from a server, such as a letta.Step.
func Object[T any](tb testing.TB, read func(text string) (*T, error), text []byte) *T {
	tb.Helper()
	v, err := read(string(text))
	if err != nil {
		tb.Fatalf("%v\n%.300s", err, text)
	}
	return v
}
