package letta_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettatest"
)

// TestKeptAsReceived checks that the text of every recorded object, message and tool is kept byte
// for byte.
func TestKeptAsReceived(t *testing.T) {
	t.Parallel()
	objects := 0
	same := func(name string, got letta.RawJSON, want []byte) {
		objects++
		if string(got) != string(want) {
			t.Errorf("%s: kept %.300q\nwant %.300q", name, got, want)
		}
	}
	messages := func(name string, list letta.Messages, raws []json.RawMessage) {
		if len(list) != len(raws) {
			t.Errorf("%s: %d messages, want %d", name, len(list), len(raws))
			return
		}
		for i := range list {
			same(fmt.Sprint(name, i), list[i].JSON, raws[i])
		}
	}
	inside := func(name string, raw json.RawMessage) (list []json.RawMessage) {
		var all map[string]json.RawMessage
		if err := json.Unmarshal(raw, &all); err != nil {
			t.Fatal(err)
		}
		_ = json.Unmarshal(all[name], &list)
		return list
	}
	for _, name := range lettatest.Names(t) {
		r := lettatest.Read(t, name)
		if len(r.Agent) > 0 {
			agent := lettatest.Object(t, letta.Read[letta.AgentState], r.Agent)
			same(name+" agent", agent.JSON, r.Agent)
			for i, raw := range inside("tools", r.Agent) {
				same(name+" agent's tool", agent.Tools[i].JSON, raw)
			}
		}
		if len(r.Conversation) > 0 && string(r.Conversation) != "null" {
			same(name+" conversation", lettatest.Object(t, letta.Read[letta.Conversation], r.Conversation).JSON, r.Conversation)
		}
		for _, tool := range r.Tools {
			same(name+" tool", lettatest.Object(t, letta.Read[letta.Tool], tool).JSON, tool)
		}
		for i, e := range r.Exchanges {
			at := fmt.Sprintf("%s exchange %d ", name, i)
			if e.Response.Status == 200 {
				answer := lettatest.Object(t, letta.Read[letta.LettaResponse], e.Response.Body)
				same(at+"response", answer.JSON, e.Response.Body)
				messages(at+"message of the answer ", answer.Messages, inside("messages", e.Response.Body))
			}
			for _, run := range e.Runs {
				same(at+"run", lettatest.Object(t, letta.Read[letta.Run], run.Run).JSON, run.Run)
				for _, s := range run.Steps {
					same(at+"step", lettatest.Object(t, letta.Read[letta.Step], s).JSON, s)
				}
				list, _ := json.Marshal(run.Messages)
				stored, err := letta.ReadList[letta.Message](string(list))
				if err != nil {
					t.Fatal(err)
				}
				var raws []json.RawMessage
				_ = json.Unmarshal(list, &raws)
				messages(at+"message ", stored, raws)
				for _, tr := range run.Traces {
					if string(tr) != "null" {
						same(at+"trace", lettatest.Object(t, letta.Read[letta.ProviderTrace], tr).JSON, tr)
					}
				}
			}
		}
	}
	if objects < 650 {
		t.Errorf("compared %d objects, want the many that the recordings hold", objects)
	}
}

// TestRequestsRecorded decodes and encodes every recorded request without changes, except for a
// null for an absent field.
func TestRequestsRecorded(t *testing.T) {
	t.Parallel()
	var got diff
	for _, name := range lettatest.Names(t) {
		if name == "bad-body" { // its request violates the schema on purpose
			continue
		}
		for i, e := range lettatest.Read(t, name).Exchanges {
			out, err := json.Marshal(lettatest.Request(t, e.Request.Body))
			if err != nil {
				t.Fatal(err)
			}
			got.compare(fmt.Sprintf("%s exchange %d ", name, i), lettatest.Tree(t, e.Request.Body), lettatest.Tree(t, out))
		}
	}
	for _, problem := range got.problems {
		t.Error(problem)
	}
	if got.objects < 80 {
		t.Errorf("compared %d objects, want the objects of all requests", got.objects)
	}
	if keys := slices.Sorted(maps.Keys(got.nulls)); !slices.Equal(keys, []string{"reason", "stderr", "stdout"}) {
		t.Errorf("nulls added for absent fields: %v, want only the fields of a client's answers", got.nulls)
	}
	if len(got.reprinted) > 0 {
		t.Errorf("reprinted numbers: %v", got.reprinted)
	}
}

// A diff collects the differences between written and read data.
type diff struct {
	problems  []string
	nulls     map[string]int
	reprinted map[string]int
	objects   int
}

func (d *diff) compare(path string, in, out any) {
	field := path[strings.LastIndexByte(path, '/')+1:]
	problem := func(format string, args ...any) {
		d.problems = append(d.problems, path+": "+fmt.Sprintf(format, args...))
	}
	switch in := in.(type) {
	case map[string]any:
		d.objects++
		got, ok := out.(map[string]any)
		if !ok {
			problem("object became %T", out)
			return
		}
		for k, v := range in {
			if _, ok := got[k]; !ok {
				problem("lost %s", k)
				continue
			}
			d.compare(path+"/"+k, v, got[k])
		}
		for k, v := range got {
			if _, ok := in[k]; ok {
				continue
			}
			if v != nil {
				problem("added %s = %v", k, v)
				continue
			}
			if d.nulls == nil {
				d.nulls = map[string]int{}
			}
			d.nulls[k]++
		}
	case []any:
		got, ok := out.([]any)
		if !ok || len(got) != len(in) {
			problem("list of %d became %T of %d", len(in), out, len(got))
			return
		}
		for i := range in {
			d.compare(path, in[i], got[i])
		}
	case json.Number:
		got, ok := out.(json.Number)
		if ok && in == got {
			return
		}
		a, errA := strconv.ParseFloat(string(in), 64)
		b, errB := strconv.ParseFloat(string(got), 64)
		if !ok || errA != nil || errB != nil || a != b {
			problem("number %v became %v", in, out)
			return
		}
		if d.reprinted == nil {
			d.reprinted = map[string]int{}
		}
		d.reprinted[field]++
	default:
		if !reflect.DeepEqual(in, out) {
			problem("%v became %v", in, out)
		}
	}
}

func TestUnions(t *testing.T) {
	t.Parallel()
	const in = `[{"message_type":"system_message"},{"content":[{"text":"a","type":"text"},{"type":"hologram","x":1}],"message_type":"user_message"},
		{"message_type":"assistant_message","content":"x"},{"message_type":"reasoning_message"},{"message_type":"hidden_reasoning_message","state":"redacted"},
		{"message_type":"tool_call_message","tool_calls":{"name":"x","arguments":null,"tool_call_id":null}},{"message_type":"tool_return_message"},{"message_type":"approval_request_message"},
		{"message_type":"approval_response_message","approvals":[{"type":"approval","approve":true},{"type":"tool"},{"type":"oracle"}]},
		{"message_type":"summary_message"},{"message_type":"event_message"},{"message_type":"from_the_future","wisdom":42}]`
	list, err := letta.ReadList[letta.Message](in)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for i := range list {
		kinds = append(kinds, string(list[i].Type))
		for _, p := range list[i].Content.Parts {
			kinds = append(kinds, p.Type+"="+p.Text)
		}
		for _, a := range list[i].Approvals {
			kinds = append(kinds, fmt.Sprint(a.Type, "=", a.Approve))
		}
	}
	const want = "system_message user_message text=a hologram= assistant_message reasoning_message hidden_reasoning_message tool_call_message tool_return_message " +
		"approval_request_message approval_response_message approval=true tool=false oracle=false summary_message event_message from_the_future"
	if got := strings.Join(kinds, " "); got != want {
		t.Errorf("kinds = %s\nwant %s", got, want)
	}
	if got := list[5].ToolCalls; len(got) != 1 || got[0].Name != "x" {
		t.Errorf("calls = %v, want the call that replaces a list", got)
	}
	for i, kept := range map[int]string{1: "hologram", 8: "oracle", 11: "wisdom"} {
		if !strings.Contains(string(list[i].JSON), kept) {
			t.Errorf("%s was lost: %s", kept, list[i].JSON)
		}
	}
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
		{"input", letta.LettaRequest{Input: letta.TextOf("hi"), MaxSteps: new(0)}, `{"input":"hi","max_steps":0}`},
		{"parts", letta.LettaRequest{Input: letta.Input(`[{"type":"text","text":"hi"}]`)}, `{"input":[{"type":"text","text":"hi"}]}`},
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

// TestArgumentsAreText checks that the key order and number format of a call's arguments are
// kept, because they reach later prompts.
func TestArgumentsAreText(t *testing.T) {
	t.Parallel()
	r := lettatest.Read(t, "tool-args-numbers")
	answer := lettatest.Object(t, letta.Read[letta.LettaResponse], r.Exchanges[0].Response.Body)
	for _, m := range answer.Messages {
		if m.Type == letta.TypeToolCall {
			if text := m.ToolCalls[0].Arguments; !strings.Contains(text, "1000.0") {
				t.Errorf("arguments = %s, want the server's 1000.0", text)
			}
			return
		}
	}
	t.Error("no call in the recording")
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
