package prompt

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettatest"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

var update = flag.Bool("update", false, "rewrite the want sections of testdata/recipe")

// TestRecipes runs testdata/recipe: the client's data of an agent's life, and the messages and
// tools that the template must receive for each call. Each file first states whether its form was
// seen on a running server or only read in the server's source. The sections are
//
//	agent      AgentState
//	system     text of the system message
//	request    of a send; starts a new one
//	turns      of its answer: role, content, tool_name, and the step of an assistant
//	stored     messages of its server run
//	trace      of the step it names; request_json is used
//	want       the template's input for each call, by each source
func TestRecipes(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/recipe/*.txtar")
	if err != nil || len(files) < 15 {
		t.Fatalf("%d vectors, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if c := string(archive.Comment); !strings.HasPrefix(c, "Seen") && !strings.HasPrefix(c, "Read") {
				t.Errorf("%s does not state whether it was seen or read", file)
			}
			want, got := "", runRecipe(t, archive)
			var rest []txtar.File
			for _, f := range archive.Files {
				if f.Name == "want" {
					want = string(f.Data)
				} else {
					rest = append(rest, f)
				}
			}
			if got == want {
				return
			}
			if *update {
				archive.Files = append(rest, txtar.File{Name: "want", Data: []byte(got)})
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			t.Errorf("\n got:\n%s\nwant:\n%s", got, want)
		})
	}
}

// lines prints messages and tools as JSON, one per line.
const lines = "{% for m in messages %}{{ m | tojson }}\n{% endfor %}{% for t in tools or [] %}tool {{ t | tojson }}\n{% endfor %}"

func runRecipe(t *testing.T, archive *txtar.Archive) string {
	t.Helper()
	rollout := record.New(nil)
	rollout.Agent = new(letta.AgentState)
	l := &transcript{rollout: rollout}
	var traces []*letta.ProviderTrace
	for _, f := range archive.Files {
		last := len(l.sends) - 1
		switch f.Name {
		case "agent":
			*l.agent() = *lettatest.Object(t, letta.Read[letta.AgentState], f.Data)
		case "system":
			l.system = strings.TrimSuffix(string(f.Data), "\n")
		case "request":
			l.sends = append(l.sends, send{request: lettatest.Request(t, f.Data)})
		case "turns":
			var turns []struct {
				Role     tokenize.Role
				Content  string
				ToolName string `json:"tool_name"`
				Step     string
			}
			if err := json.Unmarshal(f.Data, &turns); err != nil {
				t.Fatalf("%v in %s", err, f.Data)
			}
			s := &l.sends[last]
			for _, u := range turns {
				s.turns = append(s.turns, tokenize.Turn{Role: u.Role, Content: u.Content, ToolName: u.ToolName})
				if u.Role == tokenize.RoleAssistant {
					s.steps = append(s.steps, letta.Step{ID: u.Step})
					s.calls++
				}
			}
		case "stored":
			l.sends[last].stored = *lettatest.Object(t, letta.Read[letta.Messages], f.Data)
		case "trace":
			raw := letta.RawJSON(f.Data)
			if raw.Member("response_json") == "" {
				raw, _ = raw.With("response_json", `{"output_ids":[1]}`) // an error fails the reading
			}
			traces = append(traces, lettatest.Object(t, letta.Read[letta.ProviderTrace], []byte(raw)))
		case "want":
		default:
			t.Fatalf("unknown section %q", f.Name)
		}
	}
	l.decide(nil)
	tmpl, err := chat.Parse("lines", lines, chat.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	show := func(title string, in input) {
		text, err := tmpl.Render(nil, chat.Input{Messages: in.messages.view(in.scrub), Tools: in.tools})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "%s\n%s", title, text)
	}
	n := 0
	if err := l.replay(func(_ *send, _ int, in input) bool {
		show(fmt.Sprintf("call %d by stored", n), in)
		n++
		return true
	}); err != nil {
		t.Fatal(err)
	}
	for _, trace := range traces {
		system := ""
		for i := range l.sends {
			if s := &l.sends[i]; s.stepIndex(trace.StepID) >= 0 && s.request.OverrideSystem != nil {
				system = l.system
			}
		}
		read, err := readTrace(record.NewTrace(trace), l.decisions, system)
		if err != nil {
			fmt.Fprintf(&out, "trace %s: %v\n", trace.StepID, err)
			continue
		}
		show("step "+trace.StepID+" by trace", read.input())
	}
	return out.String()
}

// TestDecidedBefore: the messages of earlier server runs contain the decisions about their calls.
func TestDecidedBefore(t *testing.T) {
	t.Parallel()
	messages := *lettatest.Object(t, letta.Read[letta.Messages], []byte(`[
		{"id":"m1","message_type":"approval_request_message","tool_calls":[{"tool_call_id":"a"},{"tool_call_id":"b"},{"tool_call_id":"c"},{"tool_call_id":"open"}]},
		{"id":"m2","message_type":"approval_response_message","approvals":[{"type":"approval","tool_call_id":"a","approve":true},{"type":"approval","tool_call_id":"b","approve":false},{"type":"tool","tool_call_id":"c","status":"success","tool_return":"x"}]},
		{"id":"m3","message_type":"approval_request_message","tool_calls":[{"tool_call_id":"d"}]},
		{"id":"m4","message_type":"approval_response_message","approve":false,"approval_request_id":"m3"},
		{"id":"m5","message_type":"tool_call_message","tool_calls":[{"tool_call_id":"plain"}]}
	]`))
	slices.Reverse(messages) // the order does not matter
	x := transcript{}
	x.decide(messages)
	want := decisions{"a": decisionApproved, "b": decisionDenied, "c": decisionClient, "d": decisionDenied, "open": decisionOpen}
	if !maps.Equal(x.decisions, want) {
		t.Errorf("decisions are %v, want %v", x.decisions, want)
	}
}

// TestDecidedByMessage: the deprecated form of an answer names a message of an earlier send, and
// decides about the calls of that message.
func TestDecidedByMessage(t *testing.T) {
	t.Parallel()
	asks := func(id string, calls ...string) letta.Message {
		m := letta.Message{Type: letta.TypeApprovalRequest, ID: id}
		for _, c := range calls {
			m.ToolCalls = append(m.ToolCalls, letta.ToolCall{ToolCallID: c})
		}
		return m
	}
	answers := func(id string, approve bool) *letta.LettaRequest {
		return &letta.LettaRequest{Messages: letta.InputMessages{&letta.ApprovalCreate{Approve: &approve, ApprovalRequestID: &id}}}
	}
	x := transcript{sends: []send{
		{request: &letta.LettaRequest{}, messages: letta.Messages{asks("message-1", "a", "b"), asks("message-2", "c")}},
		{request: answers("message-1", false), messages: letta.Messages{asks("message-3", "d")}},
		{request: answers("message-3", true)},
		{request: answers("message-4", true), messages: letta.Messages{asks("message-4", "e")}}, // not requested before
	}}
	x.decide(nil)
	want := decisions{"a": decisionDenied, "b": decisionDenied, "c": decisionOpen, "d": decisionApproved, "e": decisionOpen}
	if !maps.Equal(x.decisions, want) {
		t.Errorf("decisions are %v, want %v", x.decisions, want)
	}
}

// TestCompiled: a traced system message counts only if the server compiled it or the agent has it.
func TestCompiled(t *testing.T) {
	t.Parallel()
	const block = "<memory_metadata>\n- AGENT_ID: agent-0d0e8f6e-3f0e-4c59-9f4b-3b8b2c7a1e55\n- CONVERSATION_ID: default\n" +
		"- System prompt last recompiled: 2026-01-05 09:59:58 AM UTC+0000\n" +
		"- 12 previous messages between you and the user are stored in recall memory\n"
	for _, test := range []struct {
		name, shown, today string
		want               bool
	}{
		{"as today", "Be brief.", "Be brief.", true},
		{"edited since", "Be brief.\n\n\n\n" + block + "</memory_metadata>", "Be long.", true},
		{"with an archive", "Be brief.\n\n" + block + "- 3 total memories you created are stored in archival memory (use tools to access them)\n</memory_metadata>\n", "", true},
		{"overridden", "Be terse.", "Be brief.", false},
		{"nothing is known of today", "", "", false},
		{"with skills", "Be brief.\n\n" + block + "</memory_metadata>\n\n<available_skills>\nbake\n</available_skills>", "Be brief.\n\n" + block + "</memory_metadata>", false},
		{"cut", "Be brief.\n\n" + block, "", false},
	} {
		b := &rebuild{rollout: record.New(nil), transcript: &transcript{system: test.today}}
		if got := b.compiled(&traced{messages: history{{role: roleSystem, content: test.shown}}}); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
	b := &rebuild{rollout: record.New(nil), transcript: &transcript{}}
	if b.compiled(&traced{}) || b.compiled(&traced{messages: history{{role: "user", content: block + "</memory_metadata>"}}}) {
		t.Error("a message that is not the system's counts")
	}
}
