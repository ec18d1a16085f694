//go:build linux

package cases_test

import (
	"bytes"
	"fmt"
	"maps"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"
	"time"
)

// unproven lists the simulated routes, settings and faults that no check compares, with the reason.
var unproven = map[string]string{
	"POST /v1/tools/run":                   "the result of a function: the simulated server runs no code",
	"POST /v1/agents/{id}/messages/cancel": "cancelling a send at work: when the server stops it is a race",
	"POST /v1/agents/{id}/messages":        "a send with return_logprobs alone is not native: the case of runs that others drive covers it",
	"GET /model_info":                      "a page of the engine, not of Letta",
	"GET /get_model_info":                  "a page of the engine, not of Letta",

	"Config.Seed":         "makes what is drawn",
	"Config.Cases":        "answers recorded from a real 0.16.7, byte for byte",
	"Config.KeepIDs":      "ids of the recordings",
	"Config.InputIDs":     "a server newer than 0.16.8, which does not exist",
	"Config.BareTraces":   "what 0.16.7 does; the shape of traces is compared with it off",
	"Config.NoTraces":     "a setting of the server; the case `traces off` runs against it",
	"Config.Face":         "the order of tools that flips; the case `flip` runs against it",
	"Config.Prompt":       "the prompts of recordings under Face",
	"Config.Script":       "shapes what is made up",
	"Config.BodyCache":    "for benchmarks",
	"Config.Engine":       "an engine without a template, for training loops",
	"Config.EngineFailed": "a hook",
	"Config.Weights":      "an engine's weights",
	"Config.Latency":      "time",
	"Config.Capacity":     "time",
	"Config.Database":     "PostgreSQL without connections; the case `PostgreSQL out of connections` runs against it",
	"Config.RunTool":      "a hook",
	"Config.BodyRate":     "time",
	"Config.Faults":       "see the faults",
	"Config.Password":     "a setting of the server; TestSmoke runs against one with a password",
	"Config.Version":      "a text",
	"Config.Model":        "a handle",
	"Config.KeepAnswers":  "a hook",
	"Config.KeptTraces":   "a bound",
	"Config.Now":          "a hook",

	"fault engine-down":      "the case `engine killed and restarted` runs against it",
	"fault database-full":    "the case `PostgreSQL out of connections` runs against it",
	"fault unavailable":      "written by a proxy",
	"fault too-many":         "written by a proxy, or by a provider's limit",
	"fault conflict":         "two writers of one row: a race",
	"fault reset":            "of the connection",
	"fault lost":             "of the connection",
	"fault drop":             "of the connection; the case `server killed and restarted` has it",
	"fault truncated":        "of a proxy",
	"fault stalled":          "of the connection",
	"fault slow":             "of the connection",
	"fault create-fails":     "a 500 of the database",
	"fault delete-fails":     "a 500 of the database",
	"fault abort":            "an engine that is paused during an output",
	"fault abort-early":      "the script `empty` runs against it",
	"fault plain-agent":      "a model of another provider",
	"fault huge":             "no real server is known to do it",
	"fault null-call":        "the script `null-arguments` runs against it",
	"fault no-turns":         "no real server is known to do it",
	"fault length-call":      "the script `length-tool` runs against it",
	"fault empty-turn":       "no real server is known to do it",
	"fault missing-tool":     "no real server is known to do it",
	"fault null-logprobs":    "no real server is known to do it",
	"fault nan-logprob":      "the scripts `nan` and `null` run against it",
	"fault short-logprobs":   "no real server is known to do it",
	"fault surplus-logprobs": "no real server is known to do it",
	"fault id-mismatch":      "no real server is known to do it",
	"fault wide-id":          "no real server is known to do it",
	"fault stop-error":       "an engine that fails: the case `engine killed and restarted` has it",
	"fault stop-cancelled":   "a race",
	"fault stop-unknown":     "no real server is known to do it",
}

const (
	noAgent   = "agent-00000000-0000-4000-8000-000000000001"
	noRun     = "run-00000000-0000-4000-8000-000000000002"
	noStep    = "step-00000000-0000-4000-8000-000000000003"
	noMessage = "message-00000000-0000-4000-8000-000000000004"
	noConv    = "conv-00000000-0000-4000-8000-000000000005"
	noTool    = "tool-00000000-0000-4000-8000-000000000006"
)

const conformTool = `def conform_add(a: int, b: int) -> int:
    """Add two integers.

    Args:
        a (int): the first number
        b (int): the second number
    """
    return a + b
`

// six returns a send of six calls. On the real server its script makes them.
func six(text string) map[string]any {
	return map[string]any{"messages": []any{map[string]any{"role": "user", "content": text + " [script:steps calls=6]"}}}
}

// two returns a send of two calls on the real server and six on the simulated one.
func two(text string) map[string]any {
	return map[string]any{"messages": []any{map[string]any{"role": "user", "content": text + " [script:steps calls=2]"}}}
}

// one returns a send of one call on the real server and six on the simulated one.
func one(text string) map[string]any {
	return map[string]any{"messages": []any{map[string]any{"role": "user", "content": text + " [script:single]"}}}
}

func (s *side) newAgent(name string, more ...any) string {
	s.t.Helper()
	body := map[string]any{"model": s.handle, "system": "You are a careful assistant.", "include_base_tools": false}
	for i := 0; i < len(more); i += 2 {
		body[more[i].(string)] = more[i+1]
	}
	x := s.do(http.MethodPost, "/v1/agents/", body)
	if x.status != http.StatusOK {
		s.t.Fatalf("%s: %d %s", s.url, x.status, x.body)
	}
	return s.named(x.text("id"), name)
}

func (s *side) must(agent string, body any) exchanged {
	s.t.Helper()
	x := s.do(http.MethodPost, "/v1/agents/"+s.id[agent]+"/messages", body)
	if x.status != http.StatusOK {
		s.t.Fatalf("%s: %d %s", s.url, x.status, x.body)
	}
	return x
}

// unknown records the answers to an unknown id and to a malformed one.
func (s *side) unknown(method, path, id string, body any) {
	s.t.Helper()
	s.shape("unknown id", method, strings.ReplaceAll(path, "{}", id), body)
	s.shape("malformed id", method, strings.ReplaceAll(path, "{}", "nonsense"), body)
}

func (w *world) checks(t *testing.T) []check {
	t.Helper()
	var list []check
	add := func(endpoint, behavior string, run func(s *side)) {
		list = append(list, check{endpoint, behavior, run})
	}
	const (
		get, post, patch, put, del = http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodPut, http.MethodDelete

		agents, agentPath = "/v1/agents/", "/v1/agents/{}"
		send              = "/v1/agents/{}/messages"
	)
	add("GET /v1/health/", "answer", func(s *side) { s.shape("health", get, "/v1/health/", nil) })
	add("GET /v1/health/", "slash", func(s *side) { s.shape("no slash", get, "/v1/health", nil) })
	add("GET /v1/health/", "method", func(s *side) { s.shape("POST", post, "/v1/health/", "{}") })
	add("GET /v1/health/", "unknown path", func(s *side) { s.shape("path", get, "/v1/nonsense", nil) })
	add("GET /v1/ready/", "answer", func(s *side) { s.shape("ready", get, "/v1/ready/", nil) })
	add("GET /v1/models/", "answer", func(s *side) { s.shape("models", get, "/v1/models/", nil) })
	add("GET /v1/models/", "slash", func(s *side) { s.shape("models", get, "/v1/models", nil) })
	add("POST /v1/tools/", "answer", func(s *side) {
		x := s.shape("made", post, "/v1/tools/", map[string]any{"source_code": conformTool, "source_type": "python"})
		s.named(x.text("id"), "TOOL")
	})
	add("POST /v1/tools/", "same name", func(s *side) {
		s.shape("again", post, "/v1/tools/", map[string]any{"source_code": conformTool, "source_type": "python"})
	})
	add("POST /v1/tools/", "malformed", func(s *side) {
		s.shape("no function", post, "/v1/tools/", map[string]any{"source_code": "x = 1", "source_type": "python"})
		s.shape("nothing", post, "/v1/tools/", map[string]any{})
		s.shape("no JSON", post, "/v1/tools/", "{")
	})
	add("PUT /v1/tools/", "answer", func(s *side) {
		x := s.shape("changed", put, "/v1/tools/", map[string]any{"source_code": strings.ReplaceAll(conformTool, "first", "1st"), "source_type": "python"})
		s.fact("the same tool: %v", x.text("id") == s.id["TOOL"])
	})
	add("GET /v1/tools/", "name", func(s *side) {
		x := s.shape("by name", get, "/v1/tools/?name=conform_add", nil)
		s.fact("%d tools", len(x.ids()))
		x = s.do(get, "/v1/tools/?name=nonsense", nil)
		s.fact("%d tools of another name", len(x.ids()))
	})
	add("GET /v1/tools/{id}", "answer", func(s *side) { s.shape("tool", get, "/v1/tools/"+s.id["TOOL"], nil) })
	add("GET /v1/tools/{id}", "unknown id", func(s *side) { s.unknown(get, "/v1/tools/{}", noTool, nil) })
	add("DELETE /v1/tools/{id}", "unknown id", func(s *side) { s.unknown(del, "/v1/tools/{}", noTool, nil) })
	add("POST /v1/tools/run", "malformed", func(s *side) {
		s.shape("no arguments", post, "/v1/tools/run", map[string]any{"source_code": conformTool})
		s.shape("no JSON", post, "/v1/tools/run", "{")
	})

	add("POST /v1/agents/", "answer", func(s *side) {
		guard := map[string]any{"source_code": toolSources["add"], "source_type": "python", "default_requires_approval": false}
		s.named(s.do(put, "/v1/tools/", guard).text("id"), "ADD")
		x := s.shape("made", post, agents, map[string]any{
			"model": s.handle, "system": "You are a careful assistant.", "include_base_tools": false, "tool_ids": []string{s.id["ADD"]},
			"tags": []string{"conform", "first"}, "metadata": map[string]any{"a": 1}, "name": "conform", "memory_blocks": []any{},
			"model_settings": map[string]any{"provider_type": "sglang", "temperature": 0.5, "parallel_tool_calls": false, "strict": false},
		})
		s.named(x.text("id"), "AGENT")
		s.fact("%v", x.value("llm_config", "return_token_ids"))
		s.fact("%v", x.value("llm_config", "temperature"))
		s.fact("%v %v %v", x.value("name"), x.value("tags"), x.value("metadata"))
	})
	add("POST /v1/agents/", "malformed", func(s *side) {
		s.shape("no model", post, agents, map[string]any{"name": "x"})
		s.shape("unknown model", post, agents, map[string]any{"model": "nobody/nothing"})
		s.shape("no handle", post, agents, map[string]any{"model": "nothing"})
		s.shape("bad name", post, agents, map[string]any{"model": s.handle, "name": "a/b"})
		s.shape("no JSON", post, agents, "{")
		s.shape("a list", post, agents, "[]")
		s.shape("no text", post, agents, map[string]any{"model": s.handle, "name": 3})
		s.shape("slash", post, "/v1/agents", map[string]any{"model": s.handle})
	})
	add("POST /v1/agents/", "unknown field", func(s *side) {
		x := s.shape("made", post, agents, map[string]any{"model": s.handle, "nonsense": 1, "include_base_tools": false, "tool_ids": []string{s.id["ADD"]}})
		s.named(x.text("id"), "EXTRA")
	})
	add("GET /v1/agents/{id}", "answer", func(s *side) { s.shape("agent", get, agents+s.id["AGENT"], nil) })
	add("GET /v1/agents/{id}", "slash", func(s *side) { s.shape("slash", get, agents+s.id["AGENT"]+"/", nil) })
	add("GET /v1/agents/{id}", "unknown id", func(s *side) { s.unknown(get, agentPath, noAgent, nil) })
	add("GET /v1/agents/{id}", "clients of version 1.0", func(s *side) {
		s.agent = ""
		x := s.shape("without a User-Agent", get, agents+s.id["AGENT"], nil)
		s.fact("%v", x.value("tools"))
		x = s.shape("without a User-Agent, tools", get, agents+s.id["AGENT"]+"?include=agent.tools&include=agent.tags", nil)
		s.fact("%v", x.value("tags"))
		s.agent = "letta-client/1.0"
		x = s.do(get, agents+s.id["AGENT"], nil)
		s.fact("%v", x.value("tools"))
		s.agent = "rollout/test"
	})
	add("PATCH /v1/agents/{id}", "answer", func(s *side) {
		x := s.shape("name", patch, agents+s.id["AGENT"], map[string]any{"name": "changed", "tags": []string{"conform", "second"}, "metadata": map[string]any{"b": 2}})
		s.fact("%v %v %v", x.value("name"), x.value("tags"), x.value("metadata"))
		config, _ := x.value("llm_config").(map[string]any)
		config["enable_reasoner"] = true
		x = s.shape("llm_config", patch, agents+s.id["AGENT"], map[string]any{"llm_config": config})
		s.fact("%v", x.value("llm_config", "enable_reasoner"))
		x = s.do(patch, agents+s.id["AGENT"], map[string]any{"system": "You are another.", "name": "conform", "tags": []string{"conform", "first"}})
		s.fact("%v %v", x.value("system"), x.value("name"))
	})
	add("PATCH /v1/agents/{id}", "malformed", func(s *side) {
		s.shape("no JSON", patch, agents+s.id["AGENT"], "{")
		s.shape("no text", patch, agents+s.id["AGENT"], map[string]any{"name": 3})
	})
	add("PATCH /v1/agents/{id}", "unknown id", func(s *side) { s.unknown(patch, agentPath, noAgent, map[string]any{"name": "x"}) })
	add("GET /v1/agents/", "tags", func(s *side) {
		for i := range 5 {
			s.newAgent(fmt.Sprint("LISTED-", i), "tool_ids", []string{s.id["ADD"]}, "tags", []string{"conform-list", fmt.Sprint("conform-", i%2)}, "name", fmt.Sprint("conform listed ", i))
		}
		for _, query := range []string{"tags=conform-list", "tags=conform-0", "tags=conform-0&tags=conform-1", "tags=conform-list&tags=conform-0&match_all_tags=true", "tags=conform-0&tags=conform-1&match_all_tags=true", "tags=nonsense", "name=conform%20listed%203"} {
			var names []string
			for _, id := range s.do(get, agents+"?order=asc&"+query, nil).ids() {
				names = append(names, s.names[id])
			}
			s.fact("%s: %v", query, names)
		}
	})
	add("GET /v1/agents/", "answer", func(s *side) { s.shape("agents", get, agents+"?tags=conform-list&limit=2", nil) })
	add("GET /v1/agents/", "clients of version 1.0", func(s *side) {
		s.agent = ""
		x := s.shape("agents", get, agents+"?tags=conform&include=agent.tags", nil)
		s.fact("%v %v", x.value(0, "tags"), x.value(0, "tools"))
		s.agent = "rollout/test"
	})
	add("GET /v1/agents/", "order, cursors, limit", func(s *side) {
		all := s.do(get, agents+"?tags=conform-list&order=asc", nil).ids()
		s.paging(agents+"?tags=conform-list", all, noAgent)
	})
	add("GET /v1/agents/", "malformed", func(s *side) {
		for _, q := range []string{"limit=x", "order=up"} {
			s.shape(q, get, agents+"?tags=conform-list&"+q, nil)
		}
	})
	add("GET /v1/agents/count", "answer", func(s *side) {
		s.shape("count", get, "/v1/agents/count?tags=conform-list", nil)
		for _, query := range []string{"tags=conform-list", "tags=conform-0", "tags=conform-list&tags=conform-0&match_all_tags=true", "tags=nonsense"} {
			s.fact("%s: %s", query, s.do(get, "/v1/agents/count?"+query, nil).body)
		}
	})

	add("POST /v1/agents/{id}/messages", "answer", func(s *side) {
		x := s.shape("sent", post, agents+s.id["AGENT"]+"/messages", six("First."))
		s.named(x.text("messages", 0, "run_id"), "RUN")
		s.named(x.text("messages", 0, "step_id"), "STEP")
		s.fact("%v, %v steps", x.value("stop_reason", "stop_reason"), x.value("usage", "step_count"))
		var kinds []string
		messages, _ := x.value("messages").([]any)
		for i := range messages {
			kinds = append(kinds, x.text("messages", i, "message_type"))
		}
		s.fact("%v", kinds)
		var roles []string
		turns, _ := x.value("turns").([]any)
		for i := range turns {
			roles = append(roles, x.text("turns", i, "role"))
		}
		s.fact("%v", roles)
	})
	add("POST /v1/agents/{id}/messages", "input, max_steps", func(s *side) {
		x := s.shape("input", post, agents+s.id["EXTRA"]+"/messages", map[string]any{"input": "Hi. [script:steps calls=6]", "max_steps": 2})
		s.fact("%v, %v steps", x.value("stop_reason", "stop_reason"), x.value("usage", "step_count"))
	})
	add("POST /v1/agents/{id}/messages", "token flags", func(s *side) {
		// Log-probabilities alone turn the native path off. The case of other programs' server runs
		// covers it.
		for _, flags := range []map[string]any{{"return_token_ids": true}, {"return_token_ids": true, "return_logprobs": true}} {
			body := one("Flags.")
			maps.Copy(body, flags)
			x := s.do(post, agents+s.id["EXTRA"]+"/messages", body)
			s.fact("%v: status %d, turns %v", flags, x.status, x.value("turns") != nil)
		}
	})
	add("POST /v1/agents/{id}/messages", "malformed", func(s *side) {
		at := agents + s.id["EXTRA"] + "/messages"
		message := func(m map[string]any) any { return map[string]any{"messages": []any{m}} }
		s.shape("nothing", post, at, map[string]any{})
		s.shape("no messages", post, at, map[string]any{"messages": []any{}})
		s.shape("both", post, at, map[string]any{"messages": []any{map[string]any{"role": "user", "content": "x"}}, "input": "x"})
		s.shape("role", post, at, message(map[string]any{"role": "nobody", "content": "x"}))
		s.shape("no text", post, at, message(map[string]any{"role": "user", "content": ""}))
		s.shape("type", post, at, message(map[string]any{"type": "nonsense", "role": "user", "content": "x"}))
		s.shape("approval of nothing", post, at, message(map[string]any{"type": "approval", "approvals": []any{map[string]any{"type": "approval", "tool_call_id": "x", "approve": true}}}))
		s.shape("no JSON", post, at, "{")
		s.shape("slash", post, at+"/", six("x"))
	})
	add("POST /v1/agents/{id}/messages", "unknown id", func(s *side) { s.unknown(post, send, noAgent, one("x")) })
	add("POST /v1/agents/{id}/messages", "streaming", func(s *side) {
		body := one("x")
		body["streaming"] = true
		s.shape("of an old client", post, agents+s.id["EXTRA"]+"/messages", body)
		delete(body, "streaming")
		body["stream_tokens"] = true
		s.shape("tokens", post, agents+s.id["EXTRA"]+"/messages", body)
		delete(body, "stream_tokens")
		body["background"] = true
		s.shape("background", post, agents+s.id["EXTRA"]+"/messages", body)
	})
	add("POST /v1/agents/{id}/messages/stream", "unknown id", func(s *side) { s.unknown(post, send+"/stream", noAgent, one("x")) })
	add("POST /v1/agents/{id}/messages/async", "answer", func(s *side) {
		s.newAgent("ASYNC", "tool_ids", []string{s.id["ADD"]})
		x := s.shape("run", post, agents+s.id["ASYNC"]+"/messages/async", one("Later."))
		run := s.named(x.text("id"), "ASYNC-RUN")
		for range 200 {
			x = s.do(get, "/v1/runs/"+run, nil)
			if status := x.text("status"); status != "created" && status != "running" {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		s.fact("%v, %v, %v", x.value("status"), x.value("stop_reason"), x.value("metadata", "run_type"))
		s.shapeOf("over", x)
	})
	add("POST /v1/agents/{id}/messages/async", "unknown id", func(s *side) { s.unknown(post, send+"/async", noAgent, one("x")) })
	add("POST /v1/agents/{id}/messages/cancel", "nothing to cancel", func(s *side) {
		s.shape("none", post, agents+s.id["ASYNC"]+"/messages/cancel", "null")
		s.shape("a run that is over", post, agents+s.id["ASYNC"]+"/messages/cancel", map[string]any{"run_ids": []string{s.id["ASYNC-RUN"]}})
		s.shape("no run", post, agents+s.id["ASYNC"]+"/messages/cancel", map[string]any{"run_ids": []string{noRun}})
	})
	add("POST /v1/agents/{id}/messages/cancel", "unknown id", func(s *side) { s.unknown(post, send+"/cancel", noAgent, "null") })

	add("GET /v1/runs/{id}", "answer", func(s *side) {
		x := s.shape("run", get, "/v1/runs/"+s.id["RUN"], nil)
		s.fact("%v, %v, %v, %v", x.value("status"), x.value("stop_reason"), x.value("metadata", "run_type"), x.value("request_config"))
	})
	add("GET /v1/runs/{id}", "unknown id", func(s *side) { s.unknown(get, "/v1/runs/{}", noRun, nil) })
	add("GET /v1/runs/{id}", "slash", func(s *side) { s.shape("slash", get, "/v1/runs/"+s.id["RUN"]+"/", nil) })
	add("GET /v1/runs/", "order, cursors, limit", func(s *side) {
		s.newAgent("RUNS", "tool_ids", []string{s.id["ADD"]})
		for range 5 {
			s.must("RUNS", one("Again."))
		}
		s.shape("runs", get, "/v1/runs/?limit=3&agent_id="+s.id["RUNS"], nil)
		all := s.do(get, "/v1/runs/?order=asc&agent_id="+s.id["RUNS"], nil).ids()
		s.paging("/v1/runs/?agent_id="+s.id["RUNS"], all, noRun)
		x := s.do(get, "/v1/runs/?order=asc&limit=1000&agent_id="+s.id["RUNS"]+"&before="+s.id["RUN"], nil)
		s.fact("behind a run of another agent: %d", len(x.ids()))
		x = s.do(get, "/v1/runs/?order=asc&limit=1000&agent_id="+s.id["RUNS"]+"&after="+s.id["RUN"], nil)
		s.fact("before a run of another agent: %d", len(x.ids()))
		x = s.do(get, "/v1/runs/?ascending=true&limit=2&agent_id="+s.id["RUNS"], nil)
		s.fact("ascending: %v", len(x.ids()) == 2 && x.ids()[0] == all[0])
	})
	add("GET /v1/runs/", "filters", func(s *side) {
		for _, query := range []string{"", "&statuses=completed", "&statuses=created&statuses=running", "&statuses=failed", "&active=true", "&stop_reason=end_turn", "&stop_reason=error", "&background=true", "&background=false", "&conversation_id=" + noConv, "&agent_ids=" + s.id["ASYNC"]} {
			x := s.do(get, "/v1/runs/?agent_id="+s.id["RUNS"]+query, nil)
			s.fact("%s: status %d, %d runs", s.common(query), x.status, len(x.ids()))
		}
		x := s.do(get, "/v1/runs/?agent_ids="+s.id["RUNS"]+"&agent_ids="+s.id["ASYNC"], nil)
		s.fact("two agents: %d runs", len(x.ids()))
		x = s.do(get, "/v1/runs/?agent_id="+noAgent, nil)
		s.fact("no agent: status %d, %d runs", x.status, len(x.ids()))
		x = s.do(get, "/v1/runs/?background=true&agent_id="+s.id["ASYNC"], nil)
		s.fact("in the background: %d runs", len(x.ids()))
	})
	add("GET /v1/runs/", "malformed", func(s *side) {
		s.limits("/v1/runs/?agent_id=" + s.id["RUNS"])
		s.shape("status", get, "/v1/runs/?statuses=done", nil)
		s.shape("stop reason", get, "/v1/runs/?stop_reason=tired", nil)
		s.shape("slash", get, "/v1/runs?limit=1", nil)
	})
	add("GET /v1/runs/{id}/messages", "answer", func(s *side) {
		x := s.shape("messages", get, "/v1/runs/"+s.id["RUN"]+"/messages", nil)
		var kinds []string
		list, _ := x.value().([]any)
		for i := range list {
			kinds = append(kinds, x.text(i, "message_type"))
		}
		s.fact("%v", kinds)
	})
	add("GET /v1/runs/{id}/messages", "order, cursors, limit", func(s *side) {
		at := "/v1/runs/" + s.id["RUN"] + "/messages"
		s.paging(at, s.do(get, at, nil).ids(), noMessage)
		s.shape("limit x", get, at+"?limit=x", nil)
	})
	add("GET /v1/runs/{id}/messages", "unknown id", func(s *side) { s.unknown(get, "/v1/runs/{}/messages", noRun, nil) })
	add("GET /v1/runs/{id}/steps", "answer", func(s *side) { s.shape("steps", get, "/v1/runs/"+s.id["RUN"]+"/steps", nil) })
	add("GET /v1/runs/{id}/steps", "order, cursors, limit", func(s *side) {
		at := "/v1/runs/" + s.id["RUN"] + "/steps"
		s.paging(at, s.do(get, at+"?order=asc", nil).ids(), noStep)
		s.shape("limit x", get, at+"?limit=x", nil)
	})
	add("GET /v1/runs/{id}/steps", "unknown id", func(s *side) { s.unknown(get, "/v1/runs/{}/steps", noRun, nil) })
	add("GET /v1/steps/", "always refused", func(s *side) {
		s.shape("steps", get, "/v1/steps/", nil)
		s.shape("ascending", get, "/v1/steps/?order=asc&limit=10&agent_id="+s.id["AGENT"], nil)
	})
	add("GET /v1/steps/{id}", "answer", func(s *side) {
		x := s.shape("step", get, "/v1/steps/"+s.id["STEP"], nil)
		s.fact("%v", x.value("status"))
	})
	add("GET /v1/steps/{id}", "unknown id", func(s *side) { s.unknown(get, "/v1/steps/{}", noStep, nil) })
	add("GET /v1/steps/{id}", "request id", func(s *side) {
		r, _ := http.NewRequestWithContext(s.t.Context(), post, s.url+agents+s.id["RUNS"]+"/messages", strings.NewReader(`{"input":"Hi. [script:single]"}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("User-Agent", s.agent)
		r.Header.Set("x-api-request-log-id", "conform-request")
		x := s.send(r)
		s.fact("status %d", x.status)
		x = s.do(get, "/v1/steps/"+x.text("messages", 0, "step_id"), nil)
		s.fact("%v", x.value("request_id"))
	})
	add("GET /v1/steps/{id}/metrics", "answer", func(s *side) { s.shape("metrics", get, "/v1/steps/"+s.id["STEP"]+"/metrics", nil) })
	add("GET /v1/steps/{id}/metrics", "unknown id", func(s *side) { s.unknown(get, "/v1/steps/{}/metrics", noStep, nil) })
	add("GET /v1/steps/{id}/trace", "answer", func(s *side) {
		at := "/v1/steps/" + s.id["STEP"] + "/trace"
		for range 100 { // it is written after the answer
			if string(s.do(get, at, nil).body) != "null" {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		s.shape("trace", get, at, nil)
	})
	add("GET /v1/steps/{id}/trace", "unknown id", func(s *side) { s.unknown(get, "/v1/steps/{}/trace", noStep, nil) })
	add("PATCH /v1/steps/{id}/feedback", "answer", func(s *side) {
		at := "/v1/steps/" + s.id["STEP"] + "/feedback"
		x := s.shape("positive", patch, at, map[string]any{"feedback": "positive"})
		s.fact("%v", x.value("feedback"))
		x = s.shape("taken back", patch, at, map[string]any{"feedback": nil})
		s.fact("%v", x.value("feedback"))
		x = s.shape("tags", patch, at, map[string]any{"feedback": "negative", "tags": []string{"a"}})
		s.fact("%v %v", x.value("feedback"), x.value("tags"))
	})
	add("PATCH /v1/steps/{id}/feedback", "malformed", func(s *side) {
		at := "/v1/steps/" + s.id["STEP"] + "/feedback"
		s.shape("word", patch, at, map[string]any{"feedback": "nice"})
		s.shape("no JSON", patch, at, "{")
	})
	add("PATCH /v1/steps/{id}/feedback", "unknown id", func(s *side) {
		s.unknown(patch, "/v1/steps/{}/feedback", noStep, map[string]any{"feedback": "positive"})
	})
	add("GET /v1/steps/{id}/messages", "answer", func(s *side) { s.shape("messages", get, "/v1/steps/"+s.id["STEP"]+"/messages", nil) })
	add("GET /v1/steps/{id}/messages", "unknown id", func(s *side) { s.unknown(get, "/v1/steps/{}/messages", noStep, nil) })

	add("GET /v1/agents/{id}/messages", "answer", func(s *side) { s.shape("messages", get, agents+s.id["AGENT"]+"/messages", nil) })
	add("GET /v1/agents/{id}/messages", "order, cursors, limit", func(s *side) {
		at := agents + s.id["AGENT"] + "/messages"
		all := s.do(get, at+"?order=asc", nil).ids()
		s.named(all[0], "SYSTEM")
		s.paging(at, all, noMessage)
		s.shape("limit x", get, at+"?limit=x", nil)
	})
	add("GET /v1/agents/{id}/messages", "unknown id", func(s *side) { s.unknown(get, send, noAgent, nil) })
	add("GET /v1/messages/{id}", "answer", func(s *side) {
		s.shape("system message", get, "/v1/messages/"+s.id["SYSTEM"], nil)
		for i, id := range s.do(get, "/v1/runs/"+s.id["RUN"]+"/messages", nil).ids() {
			if i < 3 {
				s.shape(fmt.Sprint("message ", i), get, "/v1/messages/"+id, nil)
			}
		}
	})
	add("GET /v1/messages/{id}", "unknown id", func(s *side) { s.unknown(get, "/v1/messages/{}", noMessage, nil) })

	add("POST /v1/conversations/", "answer", func(s *side) {
		x := s.shape("made", post, "/v1/conversations/?agent_id="+s.id["AGENT"], map[string]any{})
		s.named(x.text("id"), "CONVERSATION")
	})
	add("POST /v1/conversations/", "unknown id", func(s *side) {
		s.unknown(post, "/v1/conversations/?agent_id={}", noAgent, map[string]any{})
		s.shape("no agent", post, "/v1/conversations/", map[string]any{})
	})
	add("GET /v1/conversations/", "order, cursors, limit", func(s *side) {
		all := []string{}
		for i := range 5 {
			x := s.do(post, "/v1/conversations/?agent_id="+s.id["RUNS"], map[string]any{})
			all = append(all, s.named(x.text("id"), fmt.Sprint("CONVERSATION-", i)))
		}
		s.shape("conversations", get, "/v1/conversations/?agent_id="+s.id["RUNS"], nil)
		s.paging("/v1/conversations/?agent_id="+s.id["RUNS"], all, noConv)
	})
	add("GET /v1/conversations/{id}", "answer", func(s *side) { s.shape("conversation", get, "/v1/conversations/"+s.id["CONVERSATION"], nil) })
	add("GET /v1/conversations/{id}", "unknown id", func(s *side) { s.unknown(get, "/v1/conversations/{}", noConv, nil) })
	add("POST /v1/conversations/{id}/messages", "answer", func(s *side) {
		body := two("In a conversation.")
		body["streaming"] = false
		x := s.shape("sent", post, "/v1/conversations/"+s.id["CONVERSATION"]+"/messages", body)
		s.named(x.text("messages", 0, "run_id"), "TALK")
		x = s.shape("its run", get, "/v1/runs/"+s.id["TALK"], nil)
		s.fact("%v, %v, %v", x.value("status"), x.value("stop_reason"), x.value("metadata", "run_type"))
	})
	add("POST /v1/conversations/{id}/messages", "malformed", func(s *side) {
		at := "/v1/conversations/" + s.id["CONVERSATION"] + "/messages"
		s.shape("no messages", post, at, map[string]any{"messages": []any{}, "streaming": false})
		s.shape("no JSON", post, at, "{")
	})
	add("POST /v1/conversations/{id}/messages", "unknown id", func(s *side) {
		body := one("x")
		body["streaming"] = false
		s.unknown(post, "/v1/conversations/{}/messages", noConv, body)
	})
	add("GET /v1/conversations/{id}/messages", "answer", func(s *side) { s.shape("messages", get, "/v1/conversations/"+s.id["CONVERSATION"]+"/messages", nil) })
	add("GET /v1/conversations/{id}/messages", "unknown id", func(s *side) { s.unknown(get, "/v1/conversations/{}/messages", noConv, nil) })
	add("DELETE /v1/conversations/{id}", "answer", func(s *side) {
		s.shape("deleted", del, "/v1/conversations/"+s.id["CONVERSATION-4"], nil)
		s.shape("again", del, "/v1/conversations/"+s.id["CONVERSATION-4"], nil)
		s.shape("gone", get, "/v1/conversations/"+s.id["CONVERSATION-4"], nil)
	})
	add("DELETE /v1/conversations/{id}", "unknown id", func(s *side) { s.unknown(del, "/v1/conversations/{}", noConv, nil) })

	add("GET /v1/agents/{id}/export", "answer", func(s *side) {
		x := s.do(get, agents+s.id["RUNS"]+"/export", nil)
		s.fact("status %d, %T, %T", x.status, x.value("agents", 0, "system"), x.value("agents", 0, "messages", 0, "role"))
		s.id["FILE"] = string(x.body)
	})
	add("GET /v1/agents/{id}/export", "unknown id", func(s *side) { s.unknown(get, agentPath+"/export", noAgent, nil) })
	add("POST /v1/agents/import", "answer", func(s *side) {
		x := s.upload(s.id["FILE"], map[string]string{"name": "conform imported", "append_copy_suffix": "false"})
		s.shapeOf("imported", x)
		x = s.do(get, agents+x.text("agent_ids", 0), nil)
		s.fact("%v, %v, %v", x.value("name"), x.value("system"), x.value("llm_config", "return_token_ids"))
		s.named(x.text("id"), "IMPORTED")
	})
	add("POST /v1/agents/import", "malformed", func(s *side) {
		x := s.upload("{", nil)
		s.fact("no JSON: status %d", x.status)
		x = s.upload("{}", nil)
		s.fact("no agent file: status %d", x.status)
		s.shape("no form", post, "/v1/agents/import", "{}")
	})
	add("POST /v1/agents/{id}/messages/stream", "answer", func(s *side) {
		s.newAgent("STREAM", "tool_ids", []string{s.id["ADD"]})
		x := s.do(post, agents+s.id["STREAM"]+"/messages/stream", two("Streamed."))
		media, _, _ := strings.Cut(x.header.Get("Content-Type"), ";")
		s.fact("status %d, %s", x.status, media)
		for line := range bytes.SplitSeq(x.body, []byte("\n")) {
			data, ok := bytes.CutPrefix(line, []byte("data: "))
			if !ok || bytes.Equal(data, []byte("[DONE]")) {
				s.fact("line: %s", line)
				continue
			}
			event := exchanged{http.StatusOK, nil, data}
			if kind := event.text("message_type"); kind != "ping" {
				s.shapeOf(kind, event)
			}
		}
	})

	add("DELETE /v1/agents/{id}", "unknown id", func(s *side) { s.unknown(del, agentPath, noAgent, nil) })
	add("DELETE /v1/agents/{id}", "answer, and what is gone", func(s *side) {
		s.shape("deleted", del, agents+s.id["AGENT"], nil)
		s.shape("again", del, agents+s.id["AGENT"], nil)
		for _, at := range []string{"/v1/runs/" + s.id["RUN"], "/v1/runs/" + s.id["RUN"] + "/steps", "/v1/runs/" + s.id["RUN"] + "/messages", "/v1/steps/" + s.id["STEP"], "/v1/messages/" + s.id["SYSTEM"], "/v1/conversations/" + s.id["CONVERSATION"]} {
			s.shape(s.common(at), get, at, nil)
		}
		x := s.do(get, "/v1/steps/"+s.id["STEP"]+"/trace", nil)
		s.fact("its trace: status %d, there: %v", x.status, string(x.body) != "null")
		x = s.do(get, "/v1/runs/?agent_id="+s.id["AGENT"], nil)
		s.fact("its runs: %d", len(x.ids()))
		x = s.do(get, agents+"?tags=first", nil)
		s.fact("by its tag: %d", len(x.ids()))
		for _, name := range []string{"EXTRA", "ASYNC", "RUNS", "IMPORTED", "STREAM", "LISTED-0", "LISTED-1", "LISTED-2", "LISTED-3", "LISTED-4"} {
			s.do(del, agents+s.id[name], nil)
		}
	})
	add("DELETE /v1/tools/{id}", "answer", func(s *side) {
		s.shape("deleted", del, "/v1/tools/"+s.id["TOOL"], nil)
		s.shape("gone", get, "/v1/tools/"+s.id["TOOL"], nil)
	})
	return list
}

func (s *side) upload(file string, fields map[string]string) exchanged {
	s.t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part := must(form.CreateFormFile("file", "agent.af"))(s.t)
	_, _ = part.Write([]byte(file))
	for name, value := range fields {
		_ = form.WriteField(name, value)
	}
	_ = form.Close()
	r := must(http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+"/v1/agents/import", &body))(s.t)
	r.Header.Set("Content-Type", form.FormDataContentType())
	r.Header.Set("User-Agent", s.agent)
	return s.send(r)
}
