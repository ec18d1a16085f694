package letta_test

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/tokenize"
)

// publishedAs has our types of the published ones. A kind selects members of a type of several kinds.
var publishedAs = map[string]struct {
	of   reflect.Type
	kind string
}{
	"LettaRequest":   {reflect.TypeFor[letta.LettaRequest](), ""},
	"AgentState":     {reflect.TypeFor[letta.AgentState](), ""},
	"ProviderTrace":  {reflect.TypeFor[letta.ProviderTrace](), ""},
	"Step":           {reflect.TypeFor[letta.Step](), ""},
	"StepMetrics":    {reflect.TypeFor[letta.StepMetrics](), ""},
	"ToolCall":       {reflect.TypeFor[letta.ToolCall](), ""},
	"ToolReturn":     {reflect.TypeFor[letta.ToolReturn](), ""},
	"ApprovalReturn": {reflect.TypeFor[letta.Approval](), "approval"},
	"TextContent":    {reflect.TypeFor[letta.ContentPart](), "text"},

	"SystemMessage":           {reflect.TypeFor[letta.Message](), "system_message"},
	"UserMessage":             {reflect.TypeFor[letta.Message](), "user_message"},
	"AssistantMessage":        {reflect.TypeFor[letta.Message](), "assistant_message"},
	"ReasoningMessage":        {reflect.TypeFor[letta.Message](), "reasoning_message"},
	"HiddenReasoningMessage":  {reflect.TypeFor[letta.Message](), "hidden_reasoning_message"},
	"ToolCallMessage":         {reflect.TypeFor[letta.Message](), "tool_call_message"},
	"ToolReturnMessage":       {reflect.TypeFor[letta.Message](), "tool_return_message"},
	"ApprovalRequestMessage":  {reflect.TypeFor[letta.Message](), "approval_request_message"},
	"ApprovalResponseMessage": {reflect.TypeFor[letta.Message](), "approval_response_message"},
	"SummaryMessage":          {reflect.TypeFor[letta.Message](), "summary_message"},
	"EventMessage":            {reflect.TypeFor[letta.Message](), "event_message"},
}

// TestSchemas checks that each member that our types read or write is a published one.
func TestSchemas(t *testing.T) {
	t.Parallel()
	checked := 0
	check := func(name string, fields []string) {
		ours := publishedAs[name]
		for _, member := range membersOf(ours.of, ours.kind) {
			if checked++; !slices.Contains(fields, member) {
				t.Errorf("%s: we use the member %s, which is not published", name, member)
			}
		}
	}
	for _, file := range []string{"letta-request", "agent-state", "tool-return-message"} {
		check(published(t, file))
	}
	b := must(os.ReadFile("testdata/schema/steps-api.txt"))(t)
	for line := range strings.Lines(string(b)) {
		if words := strings.Fields(line); publishedAs[words[0]].of != nil {
			check(words[0], words[1:])
		}
	}
	if checked < 130 {
		t.Errorf("checked %d members", checked)
	}
	// tokenize.Decoder reads turns. It rejects a wrong type of data that rows need.
	_, fields := published(t, "turn-token-data")
	for _, f := range fields {
		var reply tokenize.Reply
		turn := `{"turns":[{"role":"tool","` + f + `":{}}]}`
		if f == "tool_name" {
			turn = `{"turns":[{"role":"tool","tool_name":"x"}]}`
		}
		if tokenize.NewDecoder(tokenize.DecoderConfig{}).DecodeBytes([]byte(turn), &reply) == nil && reply.Turns[0].ToolName != "x" {
			t.Errorf("TurnTokenData: nothing reads the field %s", f)
		}
	}
}

// membersOf returns the members of a type for a kind.
func membersOf(of reflect.Type, kind string) []string {
	var names []string
	for f := range of.Fields() {
		kinds := strings.Fields(f.Tag.Get("kinds"))
		name, _, _ := strings.Cut(f.Tag.Get("letta")+f.Tag.Get("json"), ",")
		if name != "" && name != "streaming" && (len(kinds) == 0 || slices.Contains(kinds, kind)) { // streaming is of another route
			names = append(names, name)
		}
	}
	return names
}

// published returns the title and the properties of a published schema.
func published(t *testing.T, file string) (title string, properties []string) {
	t.Helper()
	var schema struct {
		Title      string         `json:"title"`
		Properties map[string]any `json:"properties"`
	}
	b, err := os.ReadFile("testdata/schema/" + file + ".json")
	if err == nil {
		err = json.Unmarshal(b, &schema)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	for name := range schema.Properties {
		properties = append(properties, name)
	}
	return schema.Title, properties
}
