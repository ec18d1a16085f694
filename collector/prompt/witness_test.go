package prompt_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

// edited edits the text of the true prompt of call k, and sets the step's count to match.
func (known *knownLife) edited(tb testing.TB, model *prompt.Model, k int, edit func(text string) string) []int32 {
	tb.Helper()
	ids := encode(tb, model, edit(decode(tb, model, known.truths[k].prompt)))
	known.memory.steps[0][k].PromptTokens = new(int64(len(ids)))
	return ids
}

// A trace lists the members of a tool in an order of its own. The model received them in the tool's
// order, which only AgentState has.
func TestMembersOfATool(t *testing.T) {
	t.Parallel()
	model := qwen3(t)
	known := remembered(t, "tool-two")[0].clone()
	agent := known.reply.Evidence.Agent
	known.memory.agent = agent
	description := `"description": "Multiply two integers.", `
	at := slices.IndexFunc(agent.Tools, func(tool letta.Tool) bool { return tool.Name == "mul" })
	var schema struct {
		Name, Description json.RawMessage
		Parameters        json.RawMessage
	}
	if err := agent.Tools[at].JSONSchema.Decode(&schema); err != nil {
		t.Fatal(err)
	}
	agent.Tools[at].JSONSchema = letta.RawJSON(slices.Concat([]byte(`{"description":`), schema.Description, []byte(`,"name":`), schema.Name, []byte(`,"parameters":`), schema.Parameters, []byte("}")))
	var want [][]int32
	for k := range known.truths {
		want = append(want, known.edited(t, model, k, func(text string) string {
			return strings.Replace(text, `"function": {"name": "mul", `+description, `"function": {`+description+`"name": "mul", `, 1)
		}))
	}
	if slices.Equal(want[0], known.truths[0].prompt) || len(want[0]) != len(known.truths[0].prompt) {
		t.Fatalf("%d ids for %d: the test changes nothing, or the length", len(want[0]), len(known.truths[0].prompt))
	}
	for _, stored := range []bool{true, false} {
		calls := known.rebuilt(t, prompt.NewRebuilder(model, stored, true))
		for k := range calls {
			if calls[k].Grade != tokenize.CountVerified || !slices.Equal(calls[k].PromptIDs, want[k]) {
				t.Errorf("stored %v: call %d is %v from %v, with its true prompt %v; %s", stored, k, calls[k].Grade, calls[k].Source, slices.Equal(calls[k].PromptIDs, want[k]), calls[k].Note)
			}
		}
	}
}

// If the agent's tool rules select other tools for each call, the trace of one call proves nothing
// about another, even if their lengths agree.
func TestToolRules(t *testing.T) {
	t.Parallel()
	model := qwen3(t)
	known := remembered(t, "tool-two")[0].clone()
	agent, m := known.reply.Evidence.Agent, known.memory
	m.agent = agent
	only := func(k int) string { return [...]string{"add", "mul"}[k%2] }
	var want [][]int32
	for k := range known.truths {
		want = append(want, known.edited(t, model, k, func(text string) string {
			head, rest, _ := strings.Cut(text, "<tools>\n")
			list, tail, _ := strings.Cut(rest, "\n</tools>")
			for line := range strings.SplitSeq(list, "\n") {
				if strings.Contains(line, `"name": "`+only(k)+`"`) {
					return head + "<tools>\n" + line + "\n</tools>" + tail
				}
			}
			t.Fatalf("no tool %s in %s", only(k), list)
			return ""
		}))
		trace := m.traces[m.steps[0][k].ID]
		var tools []json.RawMessage
		if trace.Request.JSON.Member("tools").Decode(&tools) != nil {
			t.Fatal("the trace has no tools")
		}
		tools = slices.DeleteFunc(tools, func(raw json.RawMessage) bool { return !bytes.Contains(raw, []byte(only(k)+`"`)) })
		list, _ := json.Marshal(tools)
		request := must(trace.Request.JSON.With("tools", letta.RawJSON(list)))(t)
		m.traces[m.steps[0][k].ID] = traceOf(t, string(request), string(trace.Response.JSON))
	}
	for _, tt := range []struct {
		name   string
		rules  string
		traces []int
		want   []string
	}{
		{"a trace of every call", `{"type":"constrain_child_tools"}`, []int{0, 1, 2}, []string{"trace", "trace", "trace"}},
		{"that of the last call", `{"type":"run_first"}`, []int{2}, []string{"", "", "trace"}},
		{"a rule that nobody knows", `{"type":"new_rule"}`, []int{1, 2}, []string{"", "trace", "trace"}},
	} {
		agent.ToolRules = []letta.RawJSON{letta.RawJSON(tt.rules)}
		some := known.clone()
		for k := range known.truths {
			if !slices.Contains(tt.traces, k) {
				delete(some.memory.traces, m.steps[0][k].ID)
			}
		}
		calls := some.rebuilt(t, prompt.NewRebuilder(model, true, true))
		for k := range calls {
			c := &calls[k]
			if tt.want[k] == "" && c.Grade == tokenize.Quarantined {
				continue
			}
			if c.Source.String() != tt.want[k] || c.Grade != tokenize.CountVerified || !slices.Equal(c.PromptIDs, want[k]) {
				t.Errorf("%s: call %d is %v from %v, with its true prompt %v; %s", tt.name, k, c.Grade, c.Source, slices.Equal(c.PromptIDs, want[k]), c.Note)
			}
		}
	}
}

// TestWitnessNotHeard: if the witness's call cannot be rebuilt, its trace cannot be compared. Then
// no call of the request is proven.
func TestWitnessNotHeard(t *testing.T) {
	t.Parallel()
	model := qwen3(t)
	known := remembered(t, "tool-two")[0].clone()
	e := known.reply.Evidence
	system := e.SystemText
	e.SystemText = "Not what the model was given. " + system
	known.edited(t, model, 0, func(text string) string { return strings.Replace(text, system, e.SystemText, 1) })
	known.memory.messages[0] = nil // so that only the first call can be rebuilt
	calls := known.rebuilt(t, prompt.NewRebuilder(model, true, false))
	if c := &calls[0]; c.Grade != tokenize.Quarantined || c.Reason != tokenize.ReasonNoPrompt || !strings.Contains(c.Note, "was not compared") {
		t.Errorf("the first call is %v/%v; %s", c.Grade, c.Reason, c.Note)
	}
}

// TestReadAgain changes an agent with one tool after its request, which has no trace, and before
// the agent is read again.
func TestReadAgain(t *testing.T) {
	t.Parallel()
	model := qwen3(t)
	known := remembered(t, "tool-list")[0]
	block := []letta.RawJSON{`{"id":"block-1","label":"human","value":"x"}`}
	for _, tt := range []struct {
		name   string
		before func(e *record.Rollout)
		now    func(m *memory)
		trace  bool
		want   string // part of the note; empty: proven
	}{
		{name: "nothing has changed"},
		{name: "its system message", now: func(m *memory) { m.system += "!" }, want: "the agent's system message is not what it was before the first request"},
		{name: "its tool", now: func(m *memory) {
			m.agent.Tools = slices.Clone(m.agent.Tools)
			m.agent.Tools[0].JSONSchema = letta.RawJSON(strings.ReplaceAll(string(m.agent.Tools[0].JSONSchema), "a", "b"))
		}, want: "the agent's list of tools is not what it was"},
		{name: "one tool more", now: func(m *memory) { m.agent.Tools = append(slices.Clone(m.agent.Tools), letta.Tool{}) }, want: "list of tools is not what it was"},
		{name: "a flag", now: func(m *memory) { m.agent.LLMConfig.JSON, _ = m.agent.LLMConfig.JSON.With("strict", "true") }, want: "the agent's llm_config is not what it was"},
		{name: "a rule", now: func(m *memory) { m.agent.ToolRules = block }, want: "list of tool rules is not what it was"},
		{name: "a block came", now: func(m *memory) { m.agent.Blocks = block }, want: "list of memory blocks is not what it was"},
		{name: "it has a block", before: func(e *record.Rollout) { e.Agent.Blocks = block }, now: func(m *memory) { m.agent.Blocks = block }, want: "the agent has memory blocks"},
		{name: "it was read late", before: func(e *record.Rollout) { e.Late = true }, want: "the agent was fetched only after a request had been sent"},
		{name: "it was read late, and there is a trace", before: func(e *record.Rollout) { e.Late = true }, trace: true},
		{name: "it has a block, and there is a trace", before: func(e *record.Rollout) { e.Agent.Blocks = block }, trace: true},
		{
			name: "the trace shows an override", trace: true, before: override,
			now: func(m *memory) { m.system += "!" }, want: "the agent's system message is not what it was before the first request",
		},
		{name: "the trace shows an override, nothing has changed", trace: true, before: override},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			of := known.clone()
			now := *of.memory.agent
			of.memory.agent = &now
			if tt.before != nil {
				tt.before(of.reply.Evidence)
			}
			if tt.now != nil {
				tt.now(of.memory)
			}
			if !tt.trace {
				clear(of.memory.traces)
			}
			calls := of.rebuilt(t, prompt.NewRebuilder(model, true, true))
			for k := range calls {
				c := &calls[k]
				switch {
				case tt.want == "" && (c.Grade != tokenize.CountVerified || !slices.Equal(c.PromptIDs, known.truths[k].prompt)):
					t.Errorf("call %d is %v; %s", k, c.Grade, c.Note)
				case tt.want != "" && (c.Reason != tokenize.ReasonNoPrompt || !strings.Contains(c.Note, tt.want)):
					t.Errorf("call %d is %v/%v, want no_prompt; %s", k, c.Grade, c.Reason, c.Note)
				}
			}
		})
	}
}

// override makes the requests of a clone override the system message.
func override(e *record.Rollout) {
	for i := range e.Sends {
		e.Sends[i].Request.OverrideSystem = new("another")
	}
}
