package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/collector/letta/lettatest"
	"github.com/rollout-rl/rollout/collector/record"
)

// TestFailures checks that an unspecific status is looked up before it is classified.
func TestFailures(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		change func(*lettatest.Recording)
		class  collector.Class
		says   string
	}{
		{"http-500", nil, collector.ClassUnavailable, "Server error '500 X' for url"},
		{"tool-null-args", nil, collector.ClassMalformedCall, "validation error for FunctionCall"},
		{"unknown-agent", nil, collector.ClassBadRequest, "not found"},
		{"http-500", rewrite("Server error '500 X'", "Server error '503 Service Unavailable'"), collector.ClassUnavailable, "503"},
		{"http-500", rewrite("Server error '500 X'", "Client error '429 Too Many Requests'"), collector.ClassRateLimited, "429"},
		{"http-500", rewrite("Server error '500 X'", "Client error '400 Bad Request'"), collector.ClassBadRequest, "the model engine (http://127.0.0.1:30000/generate) refused the call (see the engine's log): HTTPStatusError: Client error '400"},
		{"http-500", grown(27_000, rewrite("Server error '500 X'", "Client error '400 Bad Request'")), collector.ClassBadRequest, "400"},
		{"http-500", grown(28_000, rewrite("Server error '500 X'", "Client error '400 Bad Request'")), collector.ClassContextOverflow, "400"},
		{"http-500", grown(28_000, rewrite("Server error '500 X'", "Server error '503 Service Unavailable'")), collector.ClassUnavailable, "503"},
		{"http-500", rewrite("HTTPStatusError", "ValueError", "Server error '500 X'", "This model's maximum context length is 9 tokens"), collector.ClassContextOverflow, "maximum context"},
		{"http-500", rewrite("Server error '500 X'", "Client error '413 Too Large'"), collector.ClassBadRequest, "413"},
		{
			"http-500", rewrite("HTTPStatusError", "ConnectError", "Server error '500 X' for url 'http://127.0.0.1:30000/generate'", "All connection attempts failed"), collector.ClassUnavailable,
			"the server cannot reach its model engine (http://127.0.0.1:30000/v1): ConnectError: All connection attempts failed",
		},
		{"http-500", rewrite("HTTPStatusError", "ReadTimeout", "Server error '500 X'", ""), collector.ClassTimeoutTotal, "ReadTimeout"},
		{"http-500", rewrite("HTTPStatusError", "OSError", "Server error '500 X'", "tokenizer unreadable"), collector.ClassServerError, "tokenizer unreadable"},
		{"http-500", func(r *lettatest.Recording) { r.Exchanges[0].Runs = nil }, collector.ClassServerError, "An unknown error occurred"},
	} {
		t.Run(test.name+" "+test.says, func(t *testing.T) {
			t.Parallel()
			p, c := lettatest.NewReplay(t, test.name)
			if test.change != nil {
				test.change(p.Recording)
			}
			play(t, p, c, model, attemptOf([]string{"Hi."}), func(r *collector.Reply, err error) {
				ends(t, err, test.class, test.says)
				if _, ok := errors.AsType[*letta.APIError](err); !ok {
					t.Errorf("%v does not lead to the APIError", err)
				}
				if r == nil || len(r.Sends) != 0 {
					t.Errorf("reply %+v, want one without sends", r)
				}
			})
		})
	}
}

// grown adds a step before the failed one, after which the context has the given number of
// tokens. The window is 32,000, and the server asks the engine for 4,096.
func grown(tokens int, change func(*lettatest.Recording)) func(*lettatest.Recording) {
	return func(r *lettatest.Recording) {
		change(r)
		run := &r.Exchanges[0].Runs[0]
		ok := strings.NewReplacer(`"step-ae9b`, `"step-0000`, `"total_tokens":0`, fmt.Sprintf(`"total_tokens":%d`, tokens),
			`"status":"failed"`, `"status":"success"`).Replace(strings.ReplaceAll(string(run.Steps[0]), `": `, `":`))
		run.Steps = append([]json.RawMessage{json.RawMessage(ok)}, run.Steps...)
	}
}

// rewrite replaces text in the failure of the recorded runs.
func rewrite(pairs ...string) func(*lettatest.Recording) {
	return func(r *lettatest.Recording) {
		replacer := strings.NewReplacer(pairs...)
		for i := range r.Exchanges {
			for j := range r.Exchanges[i].Runs {
				run := &r.Exchanges[i].Runs[j]
				run.Run = json.RawMessage(replacer.Replace(string(run.Run)))
				for k := range run.Steps {
					run.Steps[k] = json.RawMessage(replacer.Replace(string(run.Steps[k])))
				}
			}
		}
	}
}

// TestFailedLater checks that the answers before an error are kept.
func TestFailedLater(t *testing.T) {
	t.Parallel()
	p, c := lettatest.NewReplay(t, "multi")
	messages := append(messagesOf(t, p.Recording), "One more.")
	play(t, p, c, model, attemptOf(messages), func(r *collector.Reply, err error) {
		if err == nil || len(r.Sends) != 3 || r.Output == "" {
			t.Errorf("Run = %d sends, %v, want 3 and an error", len(r.Sends), err)
		}
	})
}

// TestUnanswered checks that a send without an answer is canceled before its agent is deleted.
func TestUnanswered(t *testing.T) {
	t.Parallel()
	p, c := lettatest.NewReplay(t, "single")
	id := p.Made["id"].(string)
	p.Override["POST /v1/agents/"+id+"/messages"] = func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }
	play(t, p, c, model, attemptOf([]string{"Hi."}), func(r *collector.Reply, err error) {
		ends(t, err, collector.ClassConnection, "")
	})
	cancel := slices.Index(p.Requests, "POST /v1/agents/"+id+"/messages/cancel")
	gone := slices.Index(p.Requests, "DELETE /v1/agents/"+id)
	if cancel < 0 || gone < cancel {
		t.Errorf("cancel is request %d, delete %d, want both in this order", cancel, gone)
	}
}

// TestRefused checks that an agent without turns is reported and deleted before anything is sent.
func TestRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		change func(agent, llm map[string]any)
		want   string // empty: the agent is used
	}{
		{"flag", func(_, llm map[string]any) { llm["return_token_ids"] = false }, "return_token_ids"},
		{"no flag", func(_, llm map[string]any) { delete(llm, "return_token_ids") }, "return_token_ids"},
		{"provider", func(_, llm map[string]any) {
			llm["handle"], llm["provider_name"] = "vllm//models/qwen3", "vllm"
		}, "sglang"},
		{"named like sglang", func(_, llm map[string]any) {
			llm["handle"], llm["provider_name"] = "my//models/qwen3", "Slime-SGLang"
		}, ""},
		{"kind", func(agent, _ map[string]any) { agent["agent_type"] = "memgpt_v2_agent" }, "memgpt_v2_agent"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p, c := lettatest.NewReplay(t, "single")
			test.change(p.Made, p.Made["llm_config"].(map[string]any))
			b := newBackend(t, c, model)
			_, err := b.Open(t.Context(), attemptOf([]string{"Hi."}))
			if test.want == "" {
				ends(t, err, collector.ClassNone, "")
				return
			}
			ends(t, err, collector.ClassUnusable, test.want)
			if _, ok := errors.AsType[*letta.NoTurnsError](err); !ok || p.Deleted != 1 {
				t.Errorf("Open = %v, deleted %d agents, want a NoTurnsError and 1", err, p.Deleted)
			}
			_, err = b.Preflight(t.Context())
			ends(t, err, collector.ClassUnusable, "")
		})
	}
}

func answer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestPreflight(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, model string
		override    string // a request with another answer
		answer      http.HandlerFunc
		class       collector.Class
		want        string
	}{
		{"good", model.Model, "", nil, collector.ClassNone, ""},
		{"nearly", "sglang/models/qwen3", "", nil, collector.ClassUnusable, `did you mean "sglang//models/qwen3"`},
		{"not at all", "x", "", nil, collector.ClassUnusable, "(2 in total)"},
		{"no models", "x", "GET /v1/models/", answer(200, "[]"), collector.ClassUnusable, "lists no models"},
		{"password", "x", "GET /v1/models/", answer(401, `{"detail":"Unauthorized"}`), collector.ClassAuth, "401: Unauthorized"},
		{"refused", model.Model, "POST /v1/agents/", answer(404, `{"detail":"NOT_FOUND: tool mul"}`), collector.ClassUnusable, "tool mul"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p, c := lettatest.NewReplay(t, "single")
			if test.override != "" {
				p.Override[test.override] = test.answer
			}
			b := newBackend(t, c, agent.Config{Model: test.model})
			_, err := b.Preflight(t.Context())
			ends(t, err, test.class, test.want)
			if got, want := p.Deleted, p.Count("POST /v1/agents/"); test.class == collector.ClassNone && (got != want || want != 1) {
				t.Errorf("made %d agents and deleted %d", want, got)
			}
		})
	}
}

// TestPreflightLeftovers checks that a preflight removes only the agents of killed preflights.
func TestPreflightLeftovers(t *testing.T) {
	t.Parallel()
	p, c := lettatest.NewReplay(t, "single")
	ours, other := []string{agent.TagAll, agent.TagRun("preflight")}, []string{agent.TagAll, agent.TagRun("r")}
	now := time.Now().UTC()
	p.Override["GET /v1/agents/"] = func(w http.ResponseWriter, r *http.Request) {
		if tags := r.URL.Query()["tags"]; len(tags) != 1 || tags[0] != agent.TagRun("preflight") {
			t.Errorf("listed the agents with %q", tags)
		}
		_ = json.NewEncoder(w).Encode([]map[string]any{
			{"id": "agent-old", "tags": ours, "created_at": now.Add(-time.Hour)},
			{"id": "agent-young", "tags": ours, "created_at": now.Add(-time.Minute)},
			{"id": "agent-undated", "tags": ours},
			{"id": "agent-other", "tags": other, "created_at": now.Add(-time.Hour)},
		})
	}
	b := newBackend(t, c, agent.Config{Model: "sglang//models/qwen3"})
	if _, err := b.Preflight(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p.Count("DELETE /v1/agents/agent-old") != 1 || p.Deleted != 2 {
		t.Errorf("%d agents were deleted by %q, want its own and the old one", p.Deleted, p.Requests)
	}
}

// TestModelGone checks that a lost model ends the run, and that an unknown model or another bad
// setting of a task fails only its sample.
func TestModelGone(t *testing.T) {
	t.Parallel()
	for overrides, class := range map[string]collector.Class{
		"": collector.ClassUnusable, "null": collector.ClassUnusable, `{"model":"sglang/other"}`: collector.ClassBadRequest,
		`{"colour":"x"}`: collector.ClassBadRequest, `[]`: collector.ClassBadRequest, `{"max_steps":-1}`: collector.ClassBadRequest,
	} {
		p, c := lettatest.NewReplay(t, "single")
		p.Override["POST /v1/agents/"] = answer(404, `{"detail":"NOT_FOUND: Handle sglang//models/qwen3, must be one of ['sglang//models/other']"}`)
		b := newBackend(t, c, model)
		a := attemptOf([]string{"Hi."})
		a.Task.Agent = json.RawMessage(overrides)
		_, err := b.Open(t.Context(), a)
		ends(t, err, class, "")
	}
}

// TestTry checks that Try makes one call, calls look while the agent exists, and always removes
// the agent.
func TestTry(t *testing.T) {
	t.Parallel()
	l := simulated(t, lettasim.Config{Script: lettasim.Script{Calls: lettasim.Range{Min: 5, Max: 5}}}, nil)
	b := l.backend(t, agent.Config{Keep: true, MaxSteps: 9})
	task := &collector.Task{ID: "a", Messages: []string{"Add 1 and 2.", "And once more."}}
	no := errors.New("no")
	for _, want := range []error{nil, no} {
		looked := 0
		err := b.Try(t.Context(), task, 1, func(_ context.Context, r *collector.Reply, _ *record.Rollout) error {
			looked++
			if len(r.Sends) != 1 || r.Sends[0].Usage.Steps != 1 || len(r.Sends[0].Turns) == 0 {
				t.Errorf("%d sends, %d steps", len(r.Sends), r.Sends[0].Usage.Steps)
			}
			l.alive(t, 1)
			return want
		})
		if !errors.Is(err, want) || looked != 1 {
			t.Errorf("Try = %v after %d looks, want %v after one", err, looked, want)
		}
		l.alive(t, 0)
	}
	if len(task.Messages) != 2 {
		t.Error("the task was changed")
	}
}

// TestBrokenRun checks that only a failure of the infrastructure replaces the stop reason error.
func TestBrokenRun(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, of string
		// failure is metadata.error of the run; kind and message are of its last step. All JSON.
		failure, kind, message string
		class                  collector.Class // ClassNone: the stop reason is enough
	}{
		{"nothing is said", "single", `null`, `null`, `null`, collector.ClassNone},
		{"the database of a step", "single", `""`, `"TimeoutError"`, `""`, collector.ClassTimeoutTotal},
		{"the database, by its module", "single", `null`, `"asyncio.exceptions.TimeoutError"`, `""`, collector.ClassTimeoutTotal},
		{"the database of the run", "single", `"TimeoutError()"`, `null`, `null`, collector.ClassTimeoutTotal},
		{"the database of the run, as an object", "single", `{"type":"internal_error","message":"An unknown error occurred.","detail":"TimeoutError()"}`, `null`, `null`, collector.ClassTimeoutTotal},
		{"too many connections", "single", `null`, `"asyncpg.exceptions.TooManyConnectionsError"`, `"sorry, too many clients already"`, collector.ClassUnavailable},
		{"a lost connection", "single", `"asyncpg.exceptions.ConnectionDoesNotExistError"`, `null`, `null`, collector.ClassUnavailable},
		{"a tool that timed out", "tool", `"mul failed: TimeoutError: no answer within 5 s"`, `null`, `null`, collector.ClassNone},
		{"a tool that names it", "tool", `"Error executing function mul: TimeoutError()"`, `"ValueError"`, `"TimeoutError()"`, collector.ClassNone},
		{"a tool that names it alone", "tool", `null`, `null`, `"TimeoutError"`, collector.ClassNone},
		{"the result of a tool", "tool", `null`, `null`, `null`, collector.ClassNone},
		{"another error", "single", `"list index out of range"`, `"IndexError"`, `"list index out of range"`, collector.ClassNone},
		{"no text", "single", `7`, `7`, `{}`, collector.ClassNone},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, c := lettatest.NewReplay(t, tt.of)
			x := &p.Exchanges[len(p.Exchanges)-1]
			x.Response.Body = replaced(t, x.Response.Body, `"stop_reason":"end_turn"`, `"stop_reason":"error"`)
			run := &x.Runs[len(x.Runs)-1]
			run.Run = replaced(t, run.Run, `"run_type":"send_message"`, `"run_type":"send_message","error":`+tt.failure)
			last := &run.Steps[len(run.Steps)-1]
			*last = replaced(t, *last, `"error_type":null,"error_data":null`, `"error_type":`+tt.kind+`,"error_data":{"message":`+tt.message+`}`)
			if tt.name == "the result of a tool" {
				for i := range run.Messages {
					run.Messages[i] = bytes.ReplaceAll(run.Messages[i], []byte(`"tool_return": "`), []byte(`"tool_return": "TimeoutError() `))
				}
			}
			play(t, p, c, model, attemptOf(messagesOf(t, p.Recording)), func(r *collector.Reply, err error) {
				if tt.class == collector.ClassNone {
					if err != nil || len(r.Sends) == 0 || r.Sends[len(r.Sends)-1].StopReason != "error" {
						t.Errorf("Run = %v, want the answer with its stop reason", err)
					}
					return
				}
				ends(t, err, tt.class, "the server run failed: ")
			})
		})
	}
}

// replaced replaces old, which must occur, in a JSON text without its white space.
func replaced(t *testing.T, text json.RawMessage, old, with string) json.RawMessage {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), old) {
		t.Fatalf("no %s in %s", old, b.String())
	}
	return json.RawMessage(strings.Replace(b.String(), old, with, 1))
}
