package letta_test

import (
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/tokenize"
)

// A schemaType is how we read or write a type of the published schemas.
type schemaType struct {
	// before and after enclose the members of a read object.
	before, after string
	read          func(text string) (any, error)
	sent          reflect.Type // type of a sent object
}

func readAs[T any](read func(string) (*T, error), before, after string) schemaType {
	return schemaType{before: before, after: after, read: func(text string) (any, error) { return read(text) }}
}

func message(kind letta.MessageType, more string) schemaType {
	return readAs(letta.Read[letta.Message], `{"message_type":"`+string(kind)+`"`+more+`,`, "}")
}

// part is the schema of the only part of a message's content.
func part(kind string) schemaType {
	return readAs(letta.Read[letta.Message], `{"message_type":"user_message","content":[{"type":"`+kind+`",`, "}]}")
}

func step(before, after string) schemaType {
	return readAs(letta.Read[letta.Step], before, after)
}

var schemaTypes = map[string]schemaType{
	"LettaRequest":    {sent: reflect.TypeFor[letta.LettaRequest]()},
	"AgentState":      readAs(letta.Read[letta.AgentState], "{", "}"),
	"ProviderTrace":   readAs(letta.Read[letta.ProviderTrace], "{", "}"),
	"BillingContext":  readAs(letta.Read[letta.ProviderTrace], `{"billing_context":{`, "}}"),
	"Step":            readAs(letta.Read[letta.Step], "{", "}"),
	"StepMetrics":     readAs(letta.Read[letta.StepMetrics], "{", "}"),
	"CompactionStats": readAs(letta.Read[letta.Message], `{"message_type":"summary_message","compaction_stats":{`, "}}"),
	"ToolCall":        readAs(letta.Read[letta.ToolCall], "{", "}"),
	"ToolReturn":      readAs(letta.Read[letta.ToolReturn], "{", "}"),
	"ApprovalReturn":  readAs(letta.Read[letta.Approval], `{"type":"approval",`, "}"),

	"SystemMessage":           message(letta.TypeSystem, ""),
	"UserMessage":             message(letta.TypeUser, ""),
	"AssistantMessage":        message(letta.TypeAssistant, ""),
	"ReasoningMessage":        message(letta.TypeReasoning, ""),
	"HiddenReasoningMessage":  message(letta.TypeHiddenReasoning, ""),
	"ToolCallMessage":         message(letta.TypeToolCall, ""),
	"ToolReturnMessage":       message(letta.TypeToolReturn, `,"tool_call_id":"c"`),
	"ApprovalRequestMessage":  message(letta.TypeApprovalRequest, ""),
	"ApprovalResponseMessage": message(letta.TypeApprovalResponse, ""),
	"SummaryMessage":          message(letta.TypeSummary, ""),
	"EventMessage":            message(letta.TypeEvent, ""),

	"TextContent":                part("text"),
	"ImageContent":               part("image"),
	"ImageSource":                {before: `{"message_type":"user_message","content":[{"type":"image","source":{`, after: "}}]}", read: part("image").read},
	"ToolCallContent":            part("tool_call"),
	"ToolReturnContent":          part("tool_return"),
	"ReasoningContent":           part("reasoning"),
	"RedactedReasoningContent":   part("redacted_reasoning"),
	"OmittedReasoningContent":    part("omitted_reasoning"),
	"SummarizedReasoningContent": part("summarized_reasoning"),
	"ReasoningSummary":           {before: `{"message_type":"user_message","content":[{"type":"summarized_reasoning","summary":[{`, after: "}]}]}", read: part("text").read},

	// The deprecated messages of a step, which 0.16.7 leaves empty.
	"InternalMessage":  step(`{"messages":[{`, "}]}"),
	"InternalReturn":   step(`{"messages":[{"tool_returns":[{`, "}]}]}"),
	"InternalToolCall": step(`{"messages":[{"tool_calls":[{`, "}]}]}"),
	"InternalFunction": step(`{"messages":[{"tool_calls":[{"function":{`, "}}]}]}"),
}

// probes are values of every type.
var probes = []string{`"x"`, `7`, `true`, `["x"]`, `[{"type":"tool","tool_call_id":"d"}]`, `{"name":"x"}`, "null"}

// TestSchemas checks that our types keep the text of every published field, and that requests have
// all of them.
func TestSchemas(t *testing.T) {
	t.Parallel()
	checked := 0
	check := func(typeName string, fields []string) {
		of, is := schemaTypes[typeName]
		if !is {
			t.Errorf("%s: no type of ours", typeName)
			return
		}
		if of.sent == nil { // an unknown member is kept in the text
			text := of.before + `"x_new":{"b":1.50,"a":[1e3,"<é>" ]}` + of.after
			if v, err := of.read(text); err != nil || reflect.ValueOf(v).Elem().FieldByName("JSON").String() != text {
				t.Errorf("%s: kept %+v, %v, want %s", typeName, v, err, text)
			}
		}
		for _, f := range fields {
			checked++
			if of.sent != nil {
				if !slices.Contains(jsonNames(of.sent), f) {
					t.Errorf("%s has no field %s", typeName, f)
				}
				continue
			}
			checkText(t, of, f)
		}
	}
	for _, file := range []string{"letta-request", "agent-state", "tool-return-message"} {
		schema := readSchema(t, file)
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
	// tokenize.Decoder reads turns. It rejects a wrong type of data that rows need.
	for f := range readSchema(t, "turn-token-data").Properties {
		checked++
		var reply tokenize.Reply
		turn := `{"turns":[{"role":"tool","` + f + `":{}}]}`
		if f == "tool_name" {
			turn = `{"turns":[{"role":"tool","tool_name":"x"}]}`
		}
		if tokenize.NewDecoder(tokenize.DecoderConfig{}).DecodeBytes([]byte(turn), &reply) == nil && reply.Turns[0].ToolName != "x" {
			t.Errorf("TurnTokenData: nothing reads the field %s", f)
		}
	}
	if checked < 350 {
		t.Errorf("checked %d fields, want all of the five documents", checked)
	}
}

type schema struct {
	Title      string         `json:"title"`
	Properties map[string]any `json:"properties"`
}

func readSchema(t *testing.T, name string) *schema {
	t.Helper()
	b, err := os.ReadFile("testdata/schema/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	s := new(schema)
	if err := json.Unmarshal(b, s); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return s
}

// checkText checks that the text of an object with the field is kept, or refused, for any value.
func checkText(t *testing.T, of schemaType, field string) {
	t.Helper()
	for _, probe := range probes {
		text := of.before + `"` + field + `":` + probe + of.after
		with, err := of.read(text)
		if err != nil {
			continue
		}
		if value := reflect.ValueOf(with).Elem().FieldByName("JSON"); value.String() != text {
			t.Errorf("kept %s of %s", value, text)
		}
	}
}

func jsonNames(t reflect.Type) []string {
	var names []string
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}
