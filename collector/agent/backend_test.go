package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettatest"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

// messagesOf returns the user messages of a recording: its task.
func messagesOf(t *testing.T, r *lettatest.Recording) []string {
	t.Helper()
	var texts []string
	for _, e := range r.Exchanges {
		for _, m := range lettatest.Request(t, e.Request.Body).Messages {
			if u, ok := m.(*letta.MessageCreate); ok {
				texts = append(texts, letta.InputText(u.Content))
			}
		}
	}
	return texts
}

func attemptOf(messages []string) collector.Attempt {
	task := &collector.Task{ID: "t-1", Messages: messages}
	return collector.Attempt{Task: task, Key: "0123456789abcdef0123456789abcdef-0", Index: 0, GroupSize: 4, N: 2, RunID: "run-x"}
}

var model = agent.Config{Model: "sglang//models/qwen3"}

// A keeper keeps the record of the last reply whose prompts were requested.
type keeper struct{ *record.Rollout }

func (k *keeper) Prompts(_ context.Context, _ *collector.Reply, e *record.Rollout) ([]tokenize.Call, error) {
	k.Rollout = e
	return nil, nil
}

func (k *keeper) Prefetch(context.Context, *record.Rollout, record.Send, []tokenize.Turn) {}

func play(t *testing.T, p *lettatest.Replay, c *letta.Client, cfg agent.Config, a collector.Attempt, look func(*collector.Reply, error)) {
	t.Helper()
	b := newBackend(t, c, cfg)
	g := opened(t, b, a)
	reply, err := g.Run(t.Context())
	if cfg.Prompter != nil {
		_, _ = g.Prompts(t.Context(), reply)
	}
	look(reply, err)
	if err := g.Close(t.Context()); err != nil {
		t.Errorf("Close: %v", err)
	}
	if p.Deleted != 1 {
		t.Errorf("agent was deleted %d times, want once", p.Deleted)
	}
}

// TestRunRecorded replays recordings that need only messages.
func TestRunRecorded(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		sends int
		stop  string
		turns []int // per send; -1: none
	}{
		{"single", 1, "end_turn", []int{1}},
		{"tool", 1, "end_turn", []int{3}},
		{"tool-parallel", 1, "end_turn", []int{3}},
		{"sixteen", 1, "end_turn", []int{31}},
		{"multi", 3, "end_turn", []int{3, 3, 1}},
		{"length", 1, "max_tokens_exceeded", []int{1}},
		{"max-steps", 1, "max_steps", []int{6}},
		{"empty", 1, "end_turn", []int{1}},
		{"nan", 1, "end_turn", []int{1}},
		{"logprobs-only", 1, "end_turn", []int{-1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p, c := lettatest.NewReplay(t, test.name)
			play(t, p, c, model, attemptOf(messagesOf(t, p.Recording)), func(r *collector.Reply, err error) {
				if err != nil {
					t.Fatal(err)
				}
				if len(r.Sends) != test.sends || r.Sends[len(r.Sends)-1].StopReason != test.stop {
					t.Fatalf("%d sends, the last ended with %q, want %d and %q", len(r.Sends), r.Sends[len(r.Sends)-1].StopReason, test.sends, test.stop)
				}
				for i, s := range r.Sends {
					got := len(s.Turns)
					if s.Turns == nil {
						got = -1
					}
					if test.name != "multi" && got != test.turns[i] {
						t.Errorf("send %d has %d turns, want %d", i, got, test.turns[i])
					}
					if s.RunID == "" {
						t.Errorf("send %d has no server run", i)
					}
					tokens := int64(0)
					for _, turn := range s.Turns {
						tokens += int64(len(turn.OutputIDs))
					}
					if s.Turns != nil && tokens != s.Usage.CompletionTokens {
						t.Errorf("send %d: %d tokens in turns, %d in usage", i, tokens, s.Usage.CompletionTokens)
					}
				}
				if r.AgentID != p.Made["id"] || r.Model != "sglang//models/qwen3" || r.ServerVersion != "0.16.7" {
					t.Errorf("reply names %s %s %s", r.AgentID, r.Model, r.ServerVersion)
				}
			})
			for i, body := range p.Bodies {
				sent := lettatest.Request(t, body)
				if sent.ReturnTokenIDs == nil || !*sent.ReturnTokenIDs || sent.ReturnLogprobs == nil || !*sent.ReturnLogprobs {
					t.Errorf("send %d: flags %v %v, want both", i, sent.ReturnTokenIDs, sent.ReturnLogprobs)
				}
				if p.Tagged[i] != "0123456789abcdef0123456789abcdef-0/2" {
					t.Errorf("send %d is tagged %q", i, p.Tagged[i])
				}
			}
		})
	}
}

// sameSends compares the sent requests with the recorded ones, ignoring nulls.
func sameSends(t *testing.T, p *lettatest.Replay) {
	t.Helper()
	if len(p.Bodies) != len(p.Exchanges) {
		t.Errorf("%d sends, want the recorded %d", len(p.Bodies), len(p.Exchanges))
		return
	}
	for i, body := range p.Bodies {
		got, want := withoutNulls(lettatest.Tree(t, body)), withoutNulls(lettatest.Tree(t, p.Exchanges[i].Request.Body))
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(want)
		if string(a) != string(b) {
			t.Errorf("send %d:\n got %s\nwant %s", i, a, b)
		}
	}
}

func withoutNulls(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if e == nil {
				delete(v, k)
			} else {
				v[k] = withoutNulls(e)
			}
		}
	case []any:
		for i := range v {
			v[i] = withoutNulls(v[i])
		}
	}
	return v
}

// bash returns the client tool of the recordings.
func bash(t *testing.T) agent.ClientToolConfig {
	t.Helper()
	body := lettatest.Request(t, lettatest.Read(t, "client-tool-return").Exchanges[0].Request.Body)
	return agent.ClientToolConfig{Tool: body.ClientTools[0]}
}

// shell returns a client tool command that checks its input and then runs a script.
func shell(script string) []string {
	return []string{"/bin/sh", "-c", `in=$(cat); for want in '"name":"bash"' '"arguments":{"cmd":"ls"}' '"task_id":"t-1"' '"sample_index":0' '"tool_call_id":"call_'; do
		case "$in" in *"$want"*) ;; *) echo "no $want in $in" >&2; exit 3;; esac; done
		` + script}
}

func TestClientTool(t *testing.T) {
	t.Parallel()
	t.Run("as recorded", func(t *testing.T) {
		t.Parallel()
		p, c := lettatest.NewReplay(t, "client-tool-return")
		cfg, tool := model, bash(t)
		tool.Command = shell(`printf "a.txt\nb.txt"`)
		cfg.ClientTools = []agent.ClientToolConfig{tool}
		play(t, p, c, cfg, attemptOf(messagesOf(t, p.Recording)), func(r *collector.Reply, err error) {
			if err != nil || len(r.Sends) != 2 || r.Sends[0].ClientTools || !r.Sends[1].ClientTools || r.Output != "There are two files." {
				t.Fatalf("Run = %+v, %v", r, err)
			}
			if !strings.Contains(string(r.Messages), "Look first.") || !strings.Contains(string(r.Messages), "List the files.") || !json.Valid(r.Messages) {
				t.Errorf("messages %s", r.Messages)
			}
		})
		sameSends(t, p)
	})
	for _, test := range []struct {
		name   string
		change func(*agent.ClientToolConfig)
		class  collector.Class
		sent   string // part of the answer
	}{
		{"answer", func(c *agent.ClientToolConfig) { c.Answer = new("fixed") }, collector.ClassNone, `"tool_return":"fixed","status":"success"`},
		{"echo", func(c *agent.ClientToolConfig) {}, collector.ClassNone, `"tool_return":"{\"cmd\": \"ls\"}","status":"success"`},
		{"exit status", func(c *agent.ClientToolConfig) { c.Command = shell(`printf half; printf "no such file" >&2; exit 2`) }, collector.ClassNone, `"tool_return":"no such file","status":"error"`},
		{"no program", func(c *agent.ClientToolConfig) { c.Command = []string{"/no/such/program"} }, collector.ClassToolError, ""},
		{"too much", func(c *agent.ClientToolConfig) { c.Command = shell(`head -c 2000000 /dev/zero`) }, collector.ClassToolError, ""},
		{"too long", func(c *agent.ClientToolConfig) { c.Command, c.Timeout = shell(`sleep 600`), 1 }, collector.ClassToolError, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p, c := lettatest.NewReplay(t, "client-tool-return")
			cfg, tool := model, bash(t)
			test.change(&tool)
			cfg.ClientTools = []agent.ClientToolConfig{tool}
			play(t, p, c, cfg, attemptOf(messagesOf(t, p.Recording)), func(r *collector.Reply, err error) {
				ends(t, err, test.class, "")
				if len(r.Sends) == 0 {
					t.Error("the answered send is lost")
				}
			})
			if test.sent != "" && !strings.Contains(string(p.Bodies[1]), test.sent) {
				t.Errorf("answered %s, want %s in it", p.Bodies[1], test.sent)
			}
		})
	}
}

func TestApprovals(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		cfg      agent.Config
		messages []string // nil: as recorded
		repeats  int      // of the first exchange
		sends    int
		stop     string // of the last send
		client   bool   // whether the last send has the client's answer
		sent     string // part of the second send; empty: all are as recorded
	}{
		{"approve", agent.Config{Approvals: agent.ApprovalApprove}, nil, 0, 2, "end_turn", false, ""},
		{"deny", agent.Config{Approvals: agent.ApprovalDeny}, nil, 0, 2, "end_turn", true, `"approve":false`},
		{"stop", agent.Config{}, []string{"Do it.", "And then?"}, 0, 1, "requires_approval", false, "-"},
		{"without end", agent.Config{Approvals: agent.ApprovalApprove, MaxRounds: 3}, []string{"Do it."}, 10, 4, "requires_approval", false, `"approve":true`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p, c := lettatest.NewReplay(t, "approval")
			for range test.repeats {
				p.Exchanges = append(p.Exchanges[:1:1], p.Exchanges...)
			}
			if test.messages == nil {
				test.messages = messagesOf(t, p.Recording)
			}
			test.cfg.Model = model.Model
			play(t, p, c, test.cfg, attemptOf(test.messages), func(r *collector.Reply, err error) {
				if err != nil || len(r.Sends) != test.sends {
					t.Fatalf("Run = %+v, %v", r, err)
				}
				if last := r.Sends[len(r.Sends)-1]; last.StopReason != test.stop || last.ClientTools != test.client || r.Sends[0].ClientTools {
					t.Errorf("sends %+v, want the last to end with %q", r.Sends, test.stop)
				}
			})
			switch {
			case test.sent == "":
				sameSends(t, p)
			case test.sends > 1 && !strings.Contains(string(p.Bodies[1]), test.sent):
				t.Errorf("answered %s", p.Bodies[1])
			}
		})
	}
}

func TestConversation(t *testing.T) {
	t.Parallel()
	p, c := lettatest.NewReplay(t, "conversation")
	cfg := model
	e := new(keeper)
	cfg.Conversation, cfg.SystemText, cfg.Prompter = true, true, e
	play(t, p, c, cfg, attemptOf(messagesOf(t, p.Recording)), func(r *collector.Reply, err error) {
		if err != nil || len(r.Sends) != 2 {
			t.Fatalf("Run = %+v, %v", r, err)
		}
		if e.Conversation == nil || !strings.Contains(e.SystemText, "AGENT_ID") || len(e.Sends) != 2 {
			t.Errorf("evidence %+v", e)
		}
		run := e.Run(e.Sends[0].RunID)
		steps, err := run.Calls(t.Context())
		if err != nil || len(steps) != 2 {
			t.Errorf("Steps = %d, %v, want 2", len(steps), err)
		}
		messages, err := run.Messages(t.Context())
		if err != nil || len(messages) < 4 {
			t.Errorf("Messages = %d, %v", len(messages), err)
		}
		trace, err := e.Trace(t.Context(), steps[0].ID)
		if err != nil || trace == nil {
			t.Fatalf("Trace = %v, %v", trace, err)
		}
		answer, err := trace.Answer()
		if err != nil {
			t.Fatal(err)
		}
		if ids, err := answer.IDs(); err != nil || len(ids) == 0 {
			t.Errorf("IDs = %v, %v", ids, err)
		}
	})
	sameSends(t, p)
}

func TestCreateBody(t *testing.T) {
	t.Parallel()
	p, c := lettatest.NewReplay(t, "single")
	e := new(keeper)
	cfg := agent.Config{
		Model: "sglang//models/qwen3", System: "Be brief.", Tools: []string{"mul"}, Tags: []string{"mine"},
		Temperature: new(0.5), ContextWindow: 1000, KeepReasoning: true, Prompter: e,
		Create: json.RawMessage(`{"model":"loses","timezone":"Europe/Berlin","tags":["raw"],"metadata":{"own":1},"model_settings":{"tool_call_parser":"qwen25"}}`),
	}
	a := attemptOf([]string{"Hi."})
	a.Task.Agent = json.RawMessage(`{"system":"Be long.","create":{"timezone":"UTC","hidden":true}}`)
	play(t, p, c, cfg, a, func(_ *collector.Reply, err error) {
		if err != nil {
			t.Fatal(err)
		}
		if on := e.Agent.LLMConfig.EnableReasoner; on == nil || !*on {
			t.Error("enable_reasoner is not on")
		}
	})
	got, _ := json.Marshal(p.Created)
	const want = `{"agent_type":"letta_v1_agent","context_window_limit":1000,"hidden":true,"include_base_tools":false,"memory_blocks":[],` +
		`"metadata":{"own":1,"rollout":{"attempt":2,"key":"0123456789abcdef0123456789abcdef-0","run":"run-x","sample_index":0,"task_id":"t-1"}},` +
		`"model":"sglang//models/qwen3","model_settings":{"parallel_tool_calls":false,"provider_type":"sglang","strict":false,"temperature":0.5,"tool_call_parser":"qwen25"},` +
		`"name":"rollout-0123456789abcdef01234567-2","system":"Be long.",` +
		`"tags":["rollout","rollout-run:run-x","rollout-key:0123456789abcdef0123456789abcdef-0","mine","raw"],"timezone":"UTC","tools":["mul"]}`
	if string(got) != want {
		t.Errorf("created\n got %s\nwant %s", got, want)
	}
	// The PATCH sends all of llm_config, including unknown fields.
	if patched := p.Made["llm_config"].(map[string]any); patched["enable_reasoner"] != true || patched["model_endpoint"] == nil || patched["reasoning_effort"] != "high" {
		t.Errorf("llm_config became %v", patched)
	}
}

func TestImport(t *testing.T) {
	t.Parallel()
	p, c := lettatest.NewReplay(t, "single")
	play(t, p, c, agent.Config{File: []byte(`{"agents":[]}`)}, attemptOf([]string{"Hi."}), func(r *collector.Reply, err error) {
		if err != nil {
			t.Fatal(err)
		}
	})
	if form := p.Created["form"].(string); !strings.Contains(form, `{"agents":[]}`) || !strings.Contains(form, `name="append_copy_suffix"`) {
		t.Errorf("form %s", form)
	}
	if tags := fmt.Sprint(p.Made["tags"]); !strings.Contains(tags, "rollout-run:run-x") {
		t.Errorf("tags %s", tags)
	}
	if meta, _ := json.Marshal(p.Made["metadata"]); !strings.Contains(string(meta), `"task_id":"t-1"`) {
		t.Errorf("metadata %s", meta)
	}
}

// TestCheckOverrides checks the overrides of a task without a server; the error names the member.
func TestCheckOverrides(t *testing.T) {
	t.Parallel()
	plain := agent.Config{Model: "m", Tools: []string{"add"}, Tags: []string{"mine"}}
	file := agent.Config{File: []byte(`{}`)}
	for _, tt := range []struct {
		cfg        agent.Config
		text, want string // empty: valid
	}{
		{plain, ``, ""},
		{plain, `null`, ""},
		{plain, `{"model":"n","system":"s","tools":["a"],"tool_ids":[],"tags":["x"],"temperature":0.5,"context_window":9,"create":{"a":1},"keep_reasoning":true,"max_steps":3,"override_system":"o","override_model":"p","approvals":"deny"}`, ""},
		{plain, `{"tools":null,"temperature":null,"model":null}`, ""},
		{plain, `{"max_step":3}`, "the task's agent: max_step: unknown setting (did you mean max_steps?); want one of model, system, tools, "},
		{plain, `{"keep":true}`, "the task's agent: keep: unknown setting; want one of "},
		{plain, `{"max_steps":"3"}`, "the task's agent: max_steps: must be an integer"},
		{plain, `{"max_steps":1.5}`, "the task's agent: max_steps: must be an integer"},
		{plain, `{"max_steps":-1}`, "max steps -1: must not be negative"},
		{plain, `{"tools":"add"}`, "the task's agent: tools: must be a list of strings"},
		{plain, `{"create":[1]}`, "the task's agent: create: must be a JSON object"},
		{plain, `{"approvals":"maybe"}`, "the task's agent: approvals: must be one of stop, approve, deny"},
		{plain, `[]`, "the task's agent: must be a JSON object"},
		{plain, `{"model":""}`, "model: missing"},
		{file, `{"max_steps":3}`, ""},
		{file, `{"tools":["a"]}`, "an imported agent has its own system prompt, tools and settings"},
	} {
		err := tt.cfg.CheckOverrides(json.RawMessage(tt.text))
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("CheckOverrides(%s) = %v, want %q", tt.text, err, tt.want)
		}
	}
	if len(plain.Tools) != 1 || plain.Tools[0] != "add" || len(plain.Tags) != 1 {
		t.Errorf("the configuration was changed: %+v", plain)
	}
}

// TestToolsSeeNoPassword checks that a tool's environment, which a model can print, has no
// password.
func TestToolsSeeNoPassword(t *testing.T) { //nolint:paralleltest // it sets variables of the process
	const canary = "canary-7f3a-99"
	t.Setenv("ROLLOUT_TEST_PASSWORD", canary)
	t.Setenv("ROLLOUT_TEST_URL", "http://x:"+canary+"@y")
	t.Setenv("ROLLOUT_TEST_OTHER", "is kept")
	p, c := lettatest.NewReplay(t, "client-tool-return")
	c, err := letta.NewClient(letta.ClientConfig{BaseURL: c.BaseURL(), Password: canary})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdle()
	cfg, tool := model, bash(t)
	tool.Command = []string{"/bin/sh", "-c", "env"}
	cfg.ClientTools = []agent.ClientToolConfig{tool}
	play(t, p, c, cfg, attemptOf(messagesOf(t, p.Recording)), func(_ *collector.Reply, err error) {
		if err != nil {
			t.Fatal(err)
		}
	})
	if sent := string(p.Bodies[1]); strings.Contains(sent, canary) || !strings.Contains(sent, "is kept") {
		t.Errorf("the tool answered %s", sent)
	}
}
