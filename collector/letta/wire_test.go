package letta_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettatest"
)

// TestRequestsRecorded decodes and encodes every recorded request without changes, except for a
// null for an absent field of a client's answer.
func TestRequestsRecorded(t *testing.T) {
	t.Parallel()
	objects, added := 0, map[string]bool{}
	for _, name := range lettatest.Names(t) {
		if name == "bad-body" { // its request violates the schema on purpose
			continue
		}
		for i, e := range lettatest.Read(t, name).Exchanges {
			encoded := must(json.Marshal(lettatest.Request(t, e.Request.Body)))(t)
			in, out := lettatest.Tree(t, e.Request.Body), lettatest.Tree(t, encoded)
			if all, ok := in.(map[string]any); ok {
				delete(all, "include_compaction_messages") // never sent by this package
			}
			objects += withoutAdded(in, out, added)
			if !reflect.DeepEqual(in, out) {
				t.Errorf("%s exchange %d: %s became %s", name, i, e.Request.Body, encoded)
			}
		}
	}
	if objects < 80 {
		t.Errorf("compared %d objects, want the objects of all requests", objects)
	}
	if names := slices.Sorted(maps.Keys(added)); !slices.Equal(names, []string{"reason", "stderr", "stdout"}) {
		t.Errorf("nulls added for absent fields: %q, want only the fields of a client's answers", names)
	}
}

// withoutAdded deletes the null members of out that in lacks, collects their names, and returns the
// number of objects.
func withoutAdded(in, out any, added map[string]bool) (objects int) {
	switch out := out.(type) {
	case map[string]any:
		objects++
		in, _ := in.(map[string]any)
		for k, v := range out {
			if _, is := in[k]; !is && v == nil {
				delete(out, k)
				added[k] = true
				continue
			}
			objects += withoutAdded(in[k], v, added)
		}
	case []any:
		in, _ := in.([]any)
		for i := range min(len(in), len(out)) {
			objects += withoutAdded(in[i], out[i], added)
		}
	}
	return objects
}

// TestRequestForms pins the bytes of requests: the server guesses only the type of approvals.
func TestRequestForms(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		in   letta.LettaRequest
		want string
	}{
		{
			"message",
			letta.LettaRequest{Messages: letta.InputMessages{letta.UserText("a<b")}, ReturnTokenIDs: new(true), ReturnLogprobs: new(true)},
			`{"messages":[{"role":"user","content":"a<b"}],"return_logprobs":true,"return_token_ids":true}`,
		},
		{
			"parts",
			letta.LettaRequest{Messages: letta.InputMessages{&letta.MessageCreate{Role: "user", Content: letta.Input(`[{"type":"text","text":"hi"}]`)}}, MaxSteps: new(0)},
			`{"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],"max_steps":0}`,
		},
		{
			"tool return",
			letta.LettaRequest{Messages: letta.InputMessages{&letta.ToolReturnCreate{Type: "tool_return", ToolReturns: []letta.ToolResult{{Type: "tool", Status: "success", ToolCallID: "c", ToolReturn: letta.TextOf("x")}}}}},
			`{"messages":[{"type":"tool_return","tool_returns":[{"type":"tool","tool_return":"x","status":"success","tool_call_id":"c","stdout":null,"stderr":null}]}]}`,
		},
		{
			"approval",
			letta.LettaRequest{Messages: letta.InputMessages{&letta.ApprovalCreate{Type: "approval", Approvals: []letta.Answer{&letta.ApprovalReturn{Type: "approval", ToolCallID: "c"}}}}},
			`{"messages":[{"type":"approval","approvals":[{"type":"approval","tool_call_id":"c","approve":false,"reason":null}]}]}`,
		},
	} {
		got, err := json.Marshal(test.in)
		if text := strings.ReplaceAll(string(got), `\u003c`, "<"); err != nil || text != test.want {
			t.Errorf("%s: Marshal = %s, %v, want %s", test.name, text, err, test.want)
		}
	}
}

func TestTimes(t *testing.T) {
	t.Parallel()
	for _, in := range []letta.Time{"2026-11-21T09:41:20+00:00", "2026-11-21T09:41:20.000000Z", "2026-11-21T09:41:20.000000", "2026-11-21T10:41:20+01:00"} {
		got, err := in.Time()
		if err != nil || got.UTC().Format("15:04:05") != "09:41:20" {
			t.Errorf("Time(%q) = %v, %v, want 09:41:20 UTC", in, got, err)
		}
	}
	if _, err := letta.Time("yesterday").Time(); err == nil {
		t.Error("Time(yesterday) succeeded")
	}
}

func TestStopReasons(t *testing.T) {
	t.Parallel()
	s, err := letta.Read[letta.LettaResponse](`{"stop_reason":{"message_type":"stop_reason","stop_reason":"tired"}}`)
	if err != nil || s.StopReason != "tired" || s.StopReason.Known() {
		t.Errorf("an unknown word = %v, %v, want it kept and not known", s, err)
	}
	for _, known := range []letta.StopReason{"end_turn", "error", "llm_api_error", "invalid_llm_response", "invalid_tool_call", "max_steps", "max_tokens_exceeded", "no_tool_call", "tool_rule", "cancelled", "insufficient_credits", "requires_approval", "context_window_overflow_in_system_prompt"} {
		if !known.Known() {
			t.Errorf("%s is not known", known)
		}
	}
}
