package lettasim_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

func TestRouting(t *testing.T) {
	t.Parallel()
	s := start(t, lettasim.Config{Version: "0.16.9"})
	for _, tt := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/v1/health/", "", 200, `{"version":"0.16.9","status":"ok"}`},
		{"GET", "/latest/ready/", "", 200, `"ok"`},
		{"GET", "/v1/models/", "", 200, `"handle":"sglang//models/qwen3"`},
		{"GET", "/v1/nothing", "", 404, `{"detail":"Not Found"}`},
		{"PUT", "/v1/agents/", "", 405, `{"detail":"Method Not Allowed"}`},
		{"GET", "/v1/agents/agent-1", "", 422, `"examples":["agent-123e4567-e89b-42d3-8456-426614174000"]`},
		{"GET", "/v1/agents/agent-00000000-0000-4000-8000-000000000001", "", 404, `{"detail":"Agent with ID agent-00000000-0000-4000-8000-000000000001 not found"}`},
		{"GET", "/v1/runs/run-00000000-0000-4000-8000-000000000001", "", 404, `not found`},
		{"GET", "/v1/steps/", "", 400, `{"detail":"Argument order does not match type typing.Optional[str]; is False of type <class 'bool'>"}`},
		{"GET", "/v1/steps/?order=asc", "", 400, `is True of type <class 'bool'>`},
		{"GET", "/v1/steps/step-00000000-0000-4000-8000-000000000001/trace", "", 200, `null`},
		{"POST", "/v1/agents/", `{`, 422, "JSON decode error"},
		{"POST", "/v1/agents/", `{}`, 400, "Must specify"},
		{"POST", "/v1/agents/", `{"model":"x"}`, 400, "provider/model-name"},
		{"POST", "/v1/agents/", `{"model":"x/y"}`, 404, "NOT_FOUND: Handle x/y"},
		{"POST", "/v1/agents/", `{"model":"sglang//models/qwen3","name":"a/b"}`, 500, "Export failed: Agent name 'a/b' contains invalid characters"},
		{"POST", "/v1/conversations/?agent_id=agent-00000000-0000-4000-8000-000000000001", "", 404, `{"detail":"Agent not found"}`},
	} {
		if got := s.do(tt.status, tt.method, tt.path, tt.body); !strings.Contains(string(got), tt.want) {
			t.Errorf("%s %s %s = %s, want %s", tt.method, tt.path, tt.body, got, tt.want)
		}
	}
	for wrong, right := range map[string]string{"/v1/agents?tags=a": "/v1/agents/?tags=a", "/v1/health": "/v1/health/"} {
		resp, _, err := s.try("GET", wrong, "")
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != 307 || resp.Header.Get("Location") != s.url+right {
			t.Errorf("GET %s = %d to %q, want 307 to %q", wrong, resp.StatusCode, resp.Header.Get("Location"), s.url+right)
		}
	}
	if st := s.Stats(); st.Requests["POST /v1/agents/"] != 5 || st.Requests["redirect"] != 2 || st.Requests["GET /v1/agents/{id}"] != 2 {
		t.Errorf("requests = %v", st.Requests)
	}
}

func TestSendIsChecked(t *testing.T) {
	t.Parallel()
	s := start(t, lettasim.Config{})
	id, _ := s.create("check", 0, 1)
	for _, tt := range []struct {
		name, body string
		status     int
		want       string
	}{
		{"neither", `{}`, 422, "Either messages or input"},
		{"both", `{"input":"x","messages":[{"role":"user","content":"x"}]}`, 422, "Either messages or input"},
		{"no messages", `{"messages":[]}`, 422, "Messages must not be empty"},
		{"role", `{"messages":[{"role":"wizard","content":"x"}]}`, 422, "literal_error"},
		{"type", `{"messages":[{"type":"spell"}]}`, 422, "literal_error"},
		{"content", `{"messages":[{"role":"user","content":""}]}`, 400, "empty"},
		{"nothing pending", `{"messages":[{"type":"tool_return","tool_returns":[]}]}`, 400, "No tool call is currently awaiting approval"},
		{"streaming", `{"input":"x","streaming":true}`, 422, "streaming=true is only supported for SDK v1.0+ clients."},
		{"stream tokens", `{"input":"x","stream_tokens":true}`, 422, "streaming=true"},
	} {
		if got := s.do(tt.status, "POST", "/v1/agents/"+id+"/messages", tt.body); !strings.Contains(string(got), tt.want) {
			t.Errorf("%s = %s, want %s", tt.name, got, tt.want)
		}
	}
	if st := s.Stats(); st.Sends != 0 {
		t.Errorf("%d sends counted", st.Sends)
	}
	for _, tt := range []struct {
		name, flags string
		turns       bool
	}{
		{"stored", ``, true},
		{"both flags", `,"return_token_ids":true,"return_logprobs":true`, true},
		{"one flag alone", `,"return_logprobs":true`, false},
		{"both false", `,"return_token_ids":false,"return_logprobs":false`, true},
	} {
		got := s.do(200, "POST", "/v1/agents/"+id+"/messages", `{"input":"x"`+tt.flags+`}`)
		if a := parse(t, got); (a.Turns != nil) != tt.turns || (a.Logprobs != nil) != tt.turns {
			t.Errorf("%s: turns %t, want %t", tt.name, a.Turns != nil, tt.turns)
		}
	}
	if a := parse(t, s.do(200, "POST", "/v1/agents/"+id+"/messages", `{"input":[{"type":"text","text":"[answer:parts]"}],"max_steps":40}`)); !strings.HasSuffix(a.Messages[len(a.Messages)-1].Content, "parts.") {
		t.Errorf("input parts: %+v", a.Messages)
	}
}

func TestMaxSteps(t *testing.T) {
	t.Parallel()
	s := start(t, lettasim.Config{Script: lettasim.Script{Calls: lettasim.Range{Min: 5, Max: 5}}})
	id, _ := s.create("steps", 0, 1)
	a := parse(t, s.do(200, "POST", "/v1/agents/"+id+"/messages", `{"input":"x","max_steps":2}`))
	if a.Usage.Steps != 2 || len(a.Turns) != 4 || a.StopReason.StopReason != "max_steps" {
		t.Errorf("%d steps, %d turns, %s", a.Usage.Steps, len(a.Turns), a.StopReason.StopReason)
	}
}

func TestPlainModel(t *testing.T) {
	t.Parallel()
	s := start(t, lettasim.Config{})
	state := s.do(200, "POST", "/v1/agents/", `{"model":"`+lettasim.PlainModel+`"}`)
	if c := field(t, state, "llm_config"); !strings.Contains(c, `"return_token_ids":false`) || !strings.Contains(c, `"provider_name":"openai-proxy"`) {
		t.Errorf("llm_config = %s", c)
	}
	if a := parse(t, s.do(200, "POST", "/v1/agents/"+field(t, state, "id")+"/messages", sendBody)); a.Turns != nil {
		t.Error("there are turns")
	}
}

func TestPassword(t *testing.T) {
	t.Parallel()
	s := start(t, lettasim.Config{Password: "secret one"})
	s.do(200, "GET", "/v1/health/", "")
	if got := s.do(401, "GET", "/v1/models/", ""); string(got) != `{"detail":"Unauthorized"}` {
		t.Errorf("401 = %s", got)
	}
	for header, value := range map[string]string{"Authorization": "Bearer secret one", "X-BARE-PASSWORD": "password secret one"} {
		s.header.Set(header, value)
		s.do(200, "GET", "/v1/models/", "")
		s.header.Set(header, value+"!")
		s.do(401, "GET", "/v1/models/", "")
		s.header.Del(header)
	}
}

// TestAgentLife lists, changes, reads and deletes agents, and checks what remains.
func TestAgentLife(t *testing.T) {
	t.Parallel()
	s := start(t, lettasim.Config{})
	newAgent := func(tags string) string {
		return field(t, s.do(200, "POST", "/v1/agents/", `{"model":"sglang//models/qwen3","tags":`+tags+`}`), "id")
	}
	a, b, c := newAgent(`["rollout","run:1"]`), newAgent(`["rollout","run:2"]`), newAgent(`[]`)
	for _, tt := range []struct {
		query string
		want  []string
	}{
		{"", []string{c, b, a}},
		{"?order=asc", []string{a, b, c}},
		{"?tags=rollout", []string{b, a}},
		{"?tags=rollout&tags=run:2", []string{b, a}},
		{"?tags=rollout&tags=run:2&match_all_tags=true", []string{b}},
		{"?limit=1", []string{c}},
		{"?limit=1&after=" + c, []string{b}},
		{"?tags=none", nil},
	} {
		if got := s.ids("/v1/agents/" + tt.query); !slices.Equal(got, tt.want) {
			t.Errorf("list %s = %v, want %v", tt.query, got, tt.want)
		}
	}

	s.header.Set("X-Api-Request-Log-Id", "key/1")
	reply := parse(t, s.do(200, "POST", "/v1/agents/"+a+"/messages", sendBody))
	s.header.Del("X-Api-Request-Log-Id")
	run := reply.Messages[0].RunID
	step := list(t, s.do(200, "GET", "/v1/runs/"+run+"/steps", ""))[0]
	stepPath := "/v1/steps/" + field(t, step, "id")
	if got := field(t, step, "request_id"); got != "key/1" {
		t.Errorf("request_id = %q", got)
	}
	trace := s.do(200, "GET", stepPath+"/trace", "")
	if got := s.do(200, "PATCH", stepPath+"/feedback", `{"feedback":"positive","tags":["good"]}`); field(t, got, "feedback") != "positive" || field(t, got, "tags") != `["good"]` {
		t.Errorf("feedback = %s", got)
	}
	s.do(422, "PATCH", stepPath+"/feedback", `{"feedback":"great"}`)
	s.do(200, "PATCH", stepPath+"/feedback", `{"feedback":null}`)
	if got := field(t, s.do(200, "GET", stepPath, ""), "feedback"); got != "null" && got != "" {
		t.Errorf("feedback after null = %q", got)
	}
	if got := s.do(200, "GET", stepPath+"/metrics", ""); !strings.Contains(string(got), `"step_ns":200000000`) {
		t.Errorf("metrics = %s", got)
	}
	last := list(t, s.do(200, "GET", "/v1/runs/"+run+"/steps?order=asc", ""))
	messages := list(t, s.do(200, "GET", "/v1/steps/"+field(t, last[len(last)-1], "id")+"/messages", ""))
	if kind := field(t, messages[len(messages)-1], "message_type"); kind != "reasoning_message" {
		t.Errorf("the assistant's text comes as %s from the step", kind)
	}
	state := s.do(200, "GET", "/v1/agents/"+a, "")
	all := list(t, s.do(200, "GET", "/v1/agents/"+a+"/messages?order=asc", ""))
	if len(all) < 3 || field(t, all[0], "message_type") != "system_message" || field(t, all[1], "message_type") != "user_message" {
		t.Errorf("messages = %s", all)
	}
	if ids := field(t, state, "message_ids"); strings.Count(ids, "message-") != len(all) {
		t.Errorf("message_ids = %s for %d messages", ids, len(all))
	}
	if got := s.do(200, "PATCH", "/v1/agents/"+a, `{"tags":["other"],"description":"x"}`); field(t, got, "tags") != `["other"]` || field(t, got, "description") != "x" {
		t.Errorf("patched = %.300s", got)
	}
	if got := s.do(200, "DELETE", "/v1/agents/"+a, ""); field(t, got, "message") != "Agent id="+a+" successfully deleted" {
		t.Errorf("delete = %s", got)
	}
	for _, path := range []string{"/v1/agents/" + a, "/v1/runs/" + run, "/v1/runs/" + run + "/steps", "/v1/runs/" + run + "/messages", stepPath, "/v1/messages/" + first(t, state, "message_ids")} {
		s.do(404, "GET", path, "")
	}
	if got := s.do(200, "GET", stepPath+"/trace", ""); string(got) != string(trace) {
		t.Errorf("the trace did not survive its agent: %.100s", got)
	}
	if got := s.do(404, "DELETE", "/v1/agents/"+a, ""); len(field(t, got, "detail")) < 200 {
		t.Errorf("second delete = %s", got)
	}
}

func TestLegacyAndNewClients(t *testing.T) {
	t.Parallel()
	s := start(t, lettasim.Config{Cases: loadCases(t)})
	id, _ := s.create("tool", 0, 1)
	for _, tt := range []struct {
		name   string
		header http.Header
		query  string
		tools  int
	}{
		{"a client that names itself", http.Header{"User-Agent": {"rollout/1"}}, "", 2},
		{"no user agent", http.Header{"User-Agent": {""}}, "", 0},
		{"a 1.0 SDK", http.Header{"User-Agent": {"letta-client/1.12.1"}}, "", 0},
		{"a 1.0 SDK that asks", http.Header{"User-Agent": {"@letta-ai/letta-client/1.0"}}, "?include=agent.blocks&include=agent.tools", 2},
		{"a stainless header", http.Header{"User-Agent": {"rollout/1"}, "X-Stainless-Package-Version": {"1.0"}}, "", 0},
	} {
		s.header = tt.header
		if tools := list(t, member(t, s.do(200, "GET", "/v1/agents/"+id+tt.query, ""), "tools")); len(tools) != tt.tools {
			t.Errorf("%s: %d tools, want %d", tt.name, len(tools), tt.tools)
		}
	}
}

func TestTools(t *testing.T) {
	t.Parallel()
	s := start(t, lettasim.Config{})
	source := func(name string) string {
		return fmt.Sprintf(`{"source_code":"def %s(city: str, days: int) -> str:\n    \"\"\"The weather.\n    \"\"\"\n    return city"}`, name)
	}
	made := s.do(200, "POST", "/v1/tools/", source("weather"))
	id := field(t, made, "id")
	want := `{"name":"weather","description":"The weather.","parameters":{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}},"required":["city","days"]}}`
	if got := field(t, made, "json_schema"); got != want {
		t.Errorf("schema = %s", got)
	}
	if again := s.do(200, "POST", "/v1/tools/", source("weather")); field(t, again, "id") != field(t, made, "id") {
		t.Errorf("made again: %s", again)
	}
	if got := s.do(200, "PUT", "/v1/tools/", source("weather")); field(t, got, "id") != id {
		t.Error("an upsert changes the id")
	}
	s.do(400, "POST", "/v1/tools/", `{"source_code":"nothing"}`)
	if got := list(t, s.do(200, "GET", "/v1/tools/?name=weather", "")); len(got) != 1 {
		t.Errorf("%d tools", len(got))
	}
	agent := field(t, s.do(200, "POST", "/v1/agents/", `{"model":"sglang//models/qwen3","tool_ids":["`+id+`"]}`), "id")
	called := false
	for range 5 {
		body := s.do(200, "POST", "/v1/agents/"+agent+"/messages", sendBody)
		called = called || strings.Contains(string(body), `"name":"weather","arguments":"{\"city\": \"`)
	}
	if !called {
		t.Error("the agent never called its tool")
	}
	s.do(200, "DELETE", "/v1/tools/"+id, "")
	s.do(404, "GET", "/v1/tools/"+id, "")
}

func TestConversation(t *testing.T) {
	t.Parallel()
	s := start(t, lettasim.Config{})
	id, _ := s.create("conv", 0, 1)
	c := s.do(200, "POST", "/v1/conversations/?agent_id="+id, `{}`)
	path := "/v1/conversations/" + field(t, c, "id")
	s.do(501, "POST", path+"/messages", `{"input":"x"}`)
	a := parse(t, s.do(200, "POST", path+"/messages", `{"input":"x","streaming":false,"return_logprobs":true}`))
	if a.Turns == nil {
		t.Error("the request's flags have an effect here")
	}
	if run := s.do(200, "GET", "/v1/runs/"+a.Messages[0].RunID, ""); field(t, run, "status") != "created" {
		t.Errorf("run = %s, want one that stays created", run)
	}
	if got := list(t, s.do(200, "GET", path+"/messages?order=asc", "")); len(got) < 3 {
		t.Errorf("%d messages", len(got))
	}
	s.do(200, "DELETE", path, "")
	s.do(404, "GET", path, "")
}

type clock struct{ ns atomic.Int64 }

func (c *clock) now() time.Time { return time.Unix(0, c.ns.Load()) }

// TestRunGoesOnWithoutItsClient drops the connection of a send that takes an hour. Its run is
// unfinished until the hour is over, and complete afterwards.
func TestRunGoesOnWithoutItsClient(t *testing.T) {
	t.Parallel()
	for _, task := range []string{"free", "sixteen"} {
		t.Run(task, func(t *testing.T) {
			t.Parallel()
			var c clock
			s := start(t, lettasim.Config{Cases: loadCases(t), Latency: lettasim.Latency{Low: time.Hour}, Now: c.now})
			id, _ := s.create(task, 0, 1)
			ctx, cancel := context.WithCancel(t.Context())
			gone := make(chan error)
			go func() {
				_, err := s.request(ctx, "POST", "/v1/agents/"+id+"/messages", sendBody)
				gone <- err
			}()
			var runs []json.RawMessage
			for len(runs) == 0 {
				runs = list(t, s.do(200, "GET", "/v1/runs/?active=true&agent_id="+id, ""))
			}
			cancel()
			if err := <-gone; err == nil {
				t.Fatal("the send was answered")
			}
			run := "/v1/runs/" + field(t, runs[0], "id")
			c.ns.Add(int64(time.Hour) - 1)
			if got := s.do(200, "GET", run, ""); field(t, got, "status") != "created" || field(t, got, "completed_at") != "null" && field(t, got, "completed_at") != "" {
				t.Errorf("run before its end = %s", got)
			}
			if got := s.do(200, "GET", run+"/steps", ""); string(got) != "[]" {
				t.Errorf("steps before the end = %s", got)
			}
			c.ns.Add(1)
			if got := s.do(200, "GET", run, ""); field(t, got, "status") != "completed" || field(t, got, "stop_reason") != "end_turn" {
				t.Errorf("run after its end = %s", got)
			}
			steps := list(t, s.do(200, "GET", run+"/steps?order=asc", ""))
			if len(steps) == 0 || string(s.do(200, "GET", "/v1/steps/"+field(t, steps[0], "id")+"/trace", "")) == "null" {
				t.Errorf("%d steps, or no trace", len(steps))
			}
			if st := s.Stats(); st.Sends != 1 || st.Answered != 0 {
				t.Errorf("stats = %+v", st)
			}
		})
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	s := start(t, lettasim.Config{Latency: lettasim.Latency{Low: time.Hour}, Script: lettasim.Script{Calls: lettasim.Range{Min: 3, Max: 3}}})
	id, _ := s.create("cancel", 0, 1)
	s.do(409, "POST", "/v1/agents/"+id+"/messages/cancel", "")
	done := make(chan []byte)
	go func() {
		_, body, err := s.try("POST", "/v1/agents/"+id+"/messages", sendBody)
		if err != nil {
			t.Error(err)
		}
		done <- body
	}()
	for len(list(t, s.do(200, "GET", "/v1/runs/?agent_id="+id, ""))) == 0 {
	}
	got := s.do(200, "POST", "/v1/agents/"+id+"/messages/cancel", "")
	a := parse(t, <-done)
	if a.StopReason.StopReason != "cancelled" || a.Usage.Steps != 1 || len(a.assistant()) != 1 {
		t.Errorf("%s after %d steps", a.StopReason.StopReason, a.Usage.Steps)
	}
	run := a.Messages[0].RunID
	if string(got) != `{"`+run+`":"cancelled"}` {
		t.Errorf("cancel = %s", got)
	}
	if status := field(t, s.do(200, "GET", "/v1/runs/"+run, ""), "status"); status != "cancelled" {
		t.Errorf("run is %s", status)
	}
}

func TestLatency(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, want string }{
		{"200ms", "{200ms 0s 0}"},
		{"50ms..2s", "{50ms 2s 0}"},
		{"200ms~0.5", "{200ms 0s 0.5}"},
		{"200ms~0.5..10s", "{200ms 10s 0.5}"},
		{"fast", `lettasim: latency "fast": want 200ms, 50ms..2s or 200ms~0.5`},
		{"2s..1s", "lettasim: latency 2s..1s sigma 0: want 0 ≤ low ≤ high and 0 ≤ sigma ≤ 10"},
		{"1s~x", `lettasim: latency "1s~x": sigma "x": want a number`},
	} {
		l, err := lettasim.ParseLatency(tt.in)
		got := fmt.Sprint(l)
		if err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("ParseLatency(%q) = %s, want %s", tt.in, got, tt.want)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	_, err := lettasim.New(lettasim.Config{
		BodyCache: -1, Script: lettasim.Script{Drift: 2, Tokens: lettasim.Range{Min: 5, Max: 1}}, Faults: lettasim.Faults{{Kind: "x"}}, Latency: lettasim.Latency{Low: -1},
		Cases: append(loadCases(t)[:1:1], loadCases(t)[0]),
	})
	for _, want := range []string{"body_cache: -1", "script.drift: 2", "script.tokens: 5..1", `fault kind "x"`, "latency -1ns", "duplicate"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not contain %q", err, want)
		}
	}
}

// TestTasks writes tasks and sends each of them.
func TestTasks(t *testing.T) {
	t.Parallel()
	s := start(t, lettasim.Config{Cases: loadCases(t)})
	recs := readRecordings(t)
	lines := strings.Split(strings.TrimSpace(string(s.Tasks(lettasim.TaskOptions{Cases: true, Scripted: 5}))), "\n")
	if len(lines) != len(recs)+5 {
		t.Fatalf("%d tasks, want %d", len(lines), len(recs)+5)
	}
	for _, line := range lines {
		task := decode[struct {
			ID, Prompt, Answer string
			Messages           []string
			Agent              map[string]any
		}](t, []byte(line))
		if (task.Prompt == "") == (task.Messages == nil) {
			t.Errorf("%s: want prompt or messages", line)
		}
		rec := recs[task.ID]
		if rec == nil {
			id, _ := s.create(task.ID, 0, 1)
			body, _ := json.Marshal(map[string]any{"input": task.Prompt})
			a := parse(t, s.do(200, "POST", "/v1/agents/"+id+"/messages", string(body)))
			if got := a.Messages[len(a.Messages)-1].Content; task.Answer == "" || !strings.HasSuffix(got, "The answer is "+task.Answer+".") {
				t.Errorf("%s: answered %q", line, got)
			}
		}
	}
	for id, want := range map[string]string{
		"approval": `"agent":{"approvals":"approve"}`, "max-steps": `"agent":{"max_steps":3}`, "reasoner-on": `"keep_reasoning":true`,
		"override-model": `"override_model":"sglang//models/qwen3"`, "multi": `"messages":["Hello. [case:single-think]",`,
	} {
		if !slices.ContainsFunc(lines, func(line string) bool {
			return strings.HasPrefix(line, `{"id":"`+id+`"`) && strings.Contains(line, want)
		}) {
			t.Errorf("task %s lacks %s", id, want)
		}
	}
}

// TestAbandonedAnswerDoesNotCount proves that an answer is not counted if the client leaves during
// a slow body.
func TestAbandonedAnswerDoesNotCount(t *testing.T) {
	t.Parallel()
	s := start(t, lettasim.Config{BodyRate: 10_000, KeepAnswers: true})
	id, _ := s.create("slow", 0, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	resp, err := s.request(ctx, "POST", "/v1/agents/"+id+"/messages", sendBody)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := resp.Body.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	if st := s.Stats(); st.Answered != 1 || st.InFlight != 1 {
		t.Errorf("in mid-body: %+v", st)
	}
	cancel()
	for s.Stats().InFlight > 0 {
		time.Sleep(time.Millisecond)
	}
	if st := s.Stats(); st.Answered != 0 || len(s.Answers()) != 0 {
		t.Errorf("afterwards: %d answered, %d answers", st.Answered, len(s.Answers()))
	}
}
