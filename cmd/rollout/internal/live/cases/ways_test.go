//go:build linux

package cases_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

// ways returns the collections that do not simply drive an agent with tools, with the model of the
// handle.
func (w *world) ways(t *testing.T, handle string, full bool) []collection {
	t.Helper()
	samples := 1
	if full {
		samples = 3
	}
	system := "You are a careful assistant."
	bash := map[string]any{
		"name": "bash", "description": "Run a shell command.", "answer": "a.txt\nb.txt é",
		"parameters": map[string]any{"type": "object", "properties": map[string]any{"cmd": map[string]any{"type": "string", "description": "the command"}}, "required": []string{"cmd"}},
	}
	list := []collection{
		{
			name: "client tools", samples: samples, agent: map[string]any{"system": system, "client_tools": []any{bash}},
			tasks: []task{play("bash", "bash").uses(), play("bash-two", "bash-two", "single").uses("add"), play("bash-mixed", "bash-mixed").uses("add", "mul").with("create", parallelCalls)},
		},
		{
			name: "conversation", samples: samples, agent: map[string]any{"system": system, "conversation": true},
			tasks: []task{play("talk", "tool", "single").uses("add"), play("talk-many", "many", "think-tool", "think")},
		},
		{
			name: "agent file", samples: samples + 1, agent: map[string]any{"file": w.agentFile(t, handle)},
			tasks: []task{{id: "af-tool", says: []string{"Go. [script:two]"}}, {id: "af-random", says: []string{"Go. [script:random seed=9 calls=3]", "And. [script:single]"}}},
		},
	}
	if !full {
		return list
	}
	some := func() []task {
		return []task{play("tool", "tool"), play("text-tool", "text-tool", "tool"), play("random", "random seed=5 calls=4"), play("split", "split")}
	}
	return append(list,
		collection{name: "prompts from traces alone", samples: 2, tasks: some(), args: []string{"--prompts", "trace"}, source: "trace"},
		collection{name: "prompts from stored messages alone", samples: 2, tasks: some(), args: []string{"--prompts", "stored"}, source: "stored"},
		collection{name: "prompts glued together, claimed by nobody", samples: 2, tasks: some(), args: []string{"--prompts", "literal", "--require", "any"}, source: "literal"},
		collection{name: "realigned", samples: 2, tasks: some(), args: []string{"--drift", "realign"}, trimmed: true},
		collection{name: "in Arrow", samples: 2, tasks: some(), args: []string{"--format", "arrow"}},
	)
}

var parallelCalls = map[string]any{"model_settings": map[string]any{"provider_type": "sglang", "temperature": 1.0, "parallel_tool_calls": true, "strict": false}}

// agentFile exports an agent with tools and returns the path.
func (w *world) agentFile(t *testing.T, handle string) string {
	t.Helper()
	c := w.l.Client(t, 0)
	agent, err := c.CreateAgent(t.Context(), object(t, map[string]any{
		"model": handle, "system": "You come from a file.", "include_base_tools": false, "tool_ids": w.toolIDs("add", "mul", "echo", "fail"),
	}))
	noError(t, err)
	file := w.l.do(t, http.MethodGet, "/v1/agents/"+agent.ID+"/export", nil)
	noError(t, c.DeleteAgent(t.Context(), agent.ID))
	path := filepath.Join(t.TempDir(), "agent.af")
	noError(t, os.WriteFile(path, file, 0o666))
	return path
}
