package letta_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettatest"
)

// TestRoundTripRecorded reads and writes every object of every recording. Nothing
// may be lost, changed or added, but for what Extra's documentation says: a null
// where a field was absent, and another text of the same number.
func TestRoundTripRecorded(t *testing.T) {
	t.Parallel()
	var got diff
	unknown := map[string]int{}
	check := func(name string, raw json.RawMessage, v any) {
		if len(raw) == 0 || string(raw) == "null" {
			return
		}
		if err := json.Unmarshal(raw, v); err != nil {
			t.Errorf("%s: decode: %v", name, err)
			return
		}
		findExtra(reflect.ValueOf(v), unknown)
		out, err := json.Marshal(v)
		if err != nil {
			t.Errorf("%s: encode: %v", name, err)
			return
		}
		got.compare(name, lettatest.Tree(t, raw), lettatest.Tree(t, out))
	}
	list := func(raws []json.RawMessage) json.RawMessage {
		b, _ := json.Marshal(raws)
		return b
	}
	for _, name := range lettatest.Names(t) {
		r := lettatest.Read(t, name)
		check(name+" agent", r.Agent, new(letta.AgentState))
		check(name+" system", r.System, new(letta.Messages))
		check(name+" conversation", r.Conversation, new(letta.Conversation))
		for _, tool := range r.Tools {
			check(name+" tool", tool, new(letta.Tool))
		}
		for i, e := range r.Exchanges {
			at := fmt.Sprintf("%s exchange %d ", name, i)
			if name != "bad-body" { // its request breaks the schema on purpose
				check(at+"request", e.Request.Body, new(letta.LettaRequest))
			}
			if e.Response.Status == 200 {
				check(at+"response", e.Response.Body, new(letta.LettaResponse))
				var whole struct {
					Logprobs json.RawMessage `json:"logprobs"`
				}
				_ = json.Unmarshal(e.Response.Body, &whole)
				check(at+"logprobs", whole.Logprobs, new(letta.ChoiceLogprobs))
			}
			for _, run := range e.Runs {
				check(at+"run", run.Run, new(letta.Run))
				for _, s := range run.Steps {
					check(at+"step", s, new(letta.Step))
				}
				check(at+"messages", list(run.Messages), new(letta.Messages))
				for _, tr := range run.Traces {
					check(at+"trace", tr, new(letta.ProviderTrace))
				}
			}
		}
	}
	for _, problem := range got.problems {
		t.Error(problem)
	}
	if got.objects < 5000 {
		t.Errorf("compared %d objects, want the thousands that the recordings hold", got.objects)
	}
	if n := len(unknown); n > 0 {
		t.Errorf("server 0.16.7 sends fields that our types do not name (they are kept): %v", unknown)
	}
	// What a round trip does change, so that a change of this list is seen.
	if keys := slices.Sorted(maps.Keys(got.nulls)); !slices.Equal(keys, []string{"reason", "stderr", "stdout"}) {
		t.Errorf("nulls added for absent fields: %v, want only those of what a client answers", got.nulls)
	}
	if keys := slices.Sorted(maps.Keys(got.reprinted)); !slices.Equal(keys, []string{"logprob", "temperature"}) {
		t.Errorf("numbers printed anew: %v", got.reprinted)
	}
}

// A diff collects how what was written differs from what was read.
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

var extraType = reflect.TypeFor[letta.Extra]()

// findExtra counts the fields that ended up in an Extra.
func findExtra(v reflect.Value, into map[string]int) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			findExtra(v.Elem(), into)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			for i := range v.Len() {
				findExtra(v.Index(i), into)
			}
		}
	case reflect.Struct:
		for _, f := range v.Fields() {
			if f.Type() == extraType {
				for _, k := range f.MapKeys() {
					into[v.Type().Name()+"."+k.String()]++
				}
			} else {
				findExtra(f, into)
			}
		}
	}
}

// schemaTypes are our types by the name that they have in testdata/schema.
var schemaTypes = map[string]reflect.Type{
	"LettaRequest": reflect.TypeFor[letta.LettaRequest](), "AgentState": reflect.TypeFor[letta.AgentState](),
	"ToolReturnMessage": reflect.TypeFor[letta.ToolReturnMessage](), "TurnTokenData": reflect.TypeFor[letta.TurnTokenData](),
	"ProviderTrace": reflect.TypeFor[letta.ProviderTrace](), "BillingContext": reflect.TypeFor[letta.BillingContext](),
	"Step": reflect.TypeFor[letta.Step](), "StepMetrics": reflect.TypeFor[letta.StepMetrics](),
	"InternalMessage": reflect.TypeFor[letta.InternalMessage](), "InternalReturn": reflect.TypeFor[letta.InternalReturn](),
	"InternalToolCall": reflect.TypeFor[letta.InternalToolCall](), "InternalFunction": reflect.TypeFor[letta.InternalFunction](),
	"ApprovalReturn": reflect.TypeFor[letta.ApprovalReturn](), "ToolReturn": reflect.TypeFor[letta.ToolReturn](),
	"ToolCall": reflect.TypeFor[letta.ToolCall](), "CompactionStats": reflect.TypeFor[letta.CompactionStats](),
	"TextContent": reflect.TypeFor[letta.TextContent](), "ImageContent": reflect.TypeFor[letta.ImageContent](),
	"ImageSource": reflect.TypeFor[letta.ImageSource](), "ToolCallContent": reflect.TypeFor[letta.ToolCallContent](),
	"ToolReturnContent": reflect.TypeFor[letta.ToolReturnContent](), "ReasoningContent": reflect.TypeFor[letta.ReasoningContent](),
	"RedactedReasoningContent":   reflect.TypeFor[letta.RedactedReasoningContent](),
	"OmittedReasoningContent":    reflect.TypeFor[letta.OmittedReasoningContent](),
	"SummarizedReasoningContent": reflect.TypeFor[letta.SummarizedReasoningContent](),
	"ReasoningSummary":           reflect.TypeFor[letta.ReasoningSummary](),
	"SystemMessage":              reflect.TypeFor[letta.SystemMessage](), "UserMessage": reflect.TypeFor[letta.UserMessage](),
	"ReasoningMessage": reflect.TypeFor[letta.ReasoningMessage](), "HiddenReasoningMessage": reflect.TypeFor[letta.HiddenReasoningMessage](),
	"ToolCallMessage": reflect.TypeFor[letta.ToolCallMessage](), "AssistantMessage": reflect.TypeFor[letta.AssistantMessage](),
	"ApprovalRequestMessage":  reflect.TypeFor[letta.ApprovalRequestMessage](),
	"ApprovalResponseMessage": reflect.TypeFor[letta.ApprovalResponseMessage](),
	"SummaryMessage":          reflect.TypeFor[letta.SummaryMessage](), "EventMessage": reflect.TypeFor[letta.EventMessage](),
}

// TestSchemas checks that every field of the published schemas has a place in our
// types, and that a value in it survives.
func TestSchemas(t *testing.T) {
	t.Parallel()
	checked := 0
	check := func(typeName string, fields []string) {
		typ := schemaTypes[typeName]
		if typ == nil {
			t.Errorf("%s: no type of ours", typeName)
			return
		}
		names := jsonNames(typ)
		for _, f := range fields {
			checked++
			if !slices.Contains(names, f) {
				t.Errorf("%s has no field %s", typeName, f)
			}
		}
	}
	for _, file := range []string{"letta-request", "agent-state", "tool-return-message", "turn-token-data"} {
		b, err := os.ReadFile("testdata/schema/" + file + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var schema struct {
			Title      string         `json:"title"`
			Properties map[string]any `json:"properties"`
		}
		if err := json.Unmarshal(b, &schema); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		check(schema.Title, slices.Collect(maps.Keys(schema.Properties)))
	}
	b, err := os.ReadFile("testdata/schema/steps-api.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		words := strings.Fields(line)
		check(words[0], words[1:])
	}
	if checked < 350 {
		t.Errorf("checked %d fields, want all of the five documents", checked)
	}
}

func jsonNames(t reflect.Type) []string {
	var names []string
	for f := range t.Fields() {
		if f.Anonymous {
			names = append(names, jsonNames(f.Type)...)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// TestUnknownIsKept puts a field that nobody knows into every type.
func TestUnknownIsKept(t *testing.T) {
	t.Parallel()
	for name, typ := range schemaTypes {
		v := reflect.New(typ).Interface()
		const in = `{"x_new":{"b":1.50,"a":[1e3,"<é>"]}}`
		if err := json.Unmarshal([]byte(in), v); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		out, err := json.Marshal(v)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got map[string]json.RawMessage
		if err := json.Unmarshal(out, &got); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		// encoding/json escapes < and > once more on the way out; nothing else.
		text := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(string(got["x_new"]))
		if want := `{"b":1.50,"a":[1e3,"<é>"]}`; text != want {
			t.Errorf("%s: x_new = %s, want %s", name, text, want)
		}
	}
}

func TestUnions(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, in string
		into     any
		want     string // the kinds, in order
	}{
		{
			"messages", `[{"message_type":"system_message"},{"message_type":"user_message","content":[{"type":"text","text":"a"},{"type":"hologram","x":1}]},
			{"message_type":"assistant_message","content":"x"},{"message_type":"reasoning_message"},{"message_type":"hidden_reasoning_message","state":"redacted"},
			{"message_type":"tool_call_message","tool_calls":{"name":"x","arguments":null,"tool_call_id":null}},{"message_type":"tool_return_message"},{"message_type":"approval_request_message"},
			{"message_type":"approval_response_message","approvals":[{"type":"approval","approve":true},{"type":"tool"},{"type":"oracle"}]},
			{"message_type":"summary_message"},{"message_type":"event_message"},{"message_type":"from_the_future","wisdom":42}]`,
			new(letta.Messages),
			"SystemMessage UserMessage AssistantMessage ReasoningMessage HiddenReasoningMessage ToolCallMessage ToolReturnMessage ApprovalRequestMessage ApprovalResponseMessage SummaryMessage EventMessage UnknownMessage",
		},
		{
			"input", `[{"role":"user","content":"hi"},{"type":"message","role":"user","content":"hi"},{"type":"approval","approvals":[]},{"approve":true},{"type":"tool_return","tool_returns":[]},{"type":"telepathy","x":1}]`,
			new(letta.InputMessages), "MessageCreate MessageCreate ApprovalCreate ApprovalCreate ToolReturnCreate Raw",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if err := json.Unmarshal([]byte(test.in), test.into); err != nil {
				t.Fatal(err)
			}
			list := reflect.ValueOf(test.into).Elem()
			var kinds []string
			for i := range list.Len() {
				kinds = append(kinds, list.Index(i).Elem().Elem().Type().Name())
			}
			if got := strings.Join(kinds, " "); got != test.want {
				t.Errorf("kinds = %s, want %s", got, test.want)
			}
			out, err := json.Marshal(test.into)
			if err != nil {
				t.Fatal(err)
			}
			for _, kept := range []string{"hologram", "oracle", "wisdom", "telepathy"} {
				if strings.Contains(test.in, kept) != strings.Contains(string(out), kept) {
					t.Errorf("%s was lost: %s", kept, out)
				}
			}
		})
	}
}

// TestRequestForms pins the bytes of what is sent: the server guesses no type but
// that of approvals.
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
		{"parts", letta.LettaRequest{Input: letta.Content{Parts: []letta.ContentPart{&letta.TextContent{Type: "text", Text: "hi"}}}}, `{"input":[{"type":"text","text":"hi"}]}`},
		{
			"tool return",
			letta.LettaRequest{Messages: letta.InputMessages{&letta.ToolReturnCreate{Type: "tool_return", ToolReturns: []letta.ToolReturn{{Type: "tool", Status: "success", ToolCallID: "c", ToolReturn: letta.TextOf("x")}}}}},
			`{"messages":[{"type":"tool_return","tool_returns":[{"type":"tool","tool_return":"x","status":"success","tool_call_id":"c","stdout":null,"stderr":null}]}]}`,
		},
		{
			"approval",
			letta.LettaRequest{Messages: letta.InputMessages{&letta.ApprovalCreate{Type: "approval", Approvals: letta.Approvals{&letta.ApprovalReturn{Type: "approval", ToolCallID: "c"}}}}},
			`{"messages":[{"type":"approval","approvals":[{"type":"approval","tool_call_id":"c","approve":false,"reason":null}]}]}`,
		},
	} {
		got, err := json.Marshal(test.in)
		if text := strings.ReplaceAll(string(got), `\u003c`, "<"); err != nil || text != test.want {
			t.Errorf("%s: Marshal = %s, %v, want %s", test.name, text, err, test.want)
		}
	}
}

// TestArgumentsAreText: the order of keys and the form of numbers of a call reach
// later prompts.
func TestArgumentsAreText(t *testing.T) {
	t.Parallel()
	r := lettatest.Read(t, "tool-args-numbers")
	var answer letta.LettaResponse
	if err := json.Unmarshal(r.Exchanges[0].Response.Body, &answer); err != nil {
		t.Fatal(err)
	}
	for _, m := range answer.Messages {
		if c, ok := m.(*letta.ToolCallMessage); ok {
			if text := *c.Calls()[0].Arguments; !strings.Contains(text, "1000.0") {
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
	var s letta.StopReasonMessage
	if err := json.Unmarshal([]byte(`{"message_type":"stop_reason","stop_reason":"tired"}`), &s); err != nil || s.StopReason != "tired" || s.StopReason.Known() {
		t.Errorf("an unknown word = %q, %v, want it kept and not known", s.StopReason, err)
	}
	for _, known := range []letta.StopReason{"end_turn", "error", "llm_api_error", "invalid_llm_response", "invalid_tool_call", "max_steps", "max_tokens_exceeded", "no_tool_call", "tool_rule", "cancelled", "insufficient_credits", "requires_approval", "context_window_overflow_in_system_prompt"} {
		if !known.Known() {
			t.Errorf("%s is not known", known)
		}
	}
}
