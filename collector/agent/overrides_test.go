package agent_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/agent"
)

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
		{plain, `{"max_step":3}`, "agent of the task: max_step: unknown setting (did you mean max_steps?); want one of model, system, tools, "},
		{plain, `{"keep":true}`, "agent of the task: keep: unknown setting; want one of "},
		{plain, `{"max_steps":"3"}`, "agent of the task: max_steps: must be an integer"},
		{plain, `{"max_steps":1.5}`, "agent of the task: max_steps: must be an integer"},
		{plain, `{"max_steps":-1}`, "max steps -1: must not be negative"},
		{plain, `{"tools":"add"}`, "agent of the task: tools: must be a list of strings"},
		{plain, `{"create":[1]}`, "agent of the task: create: must be a JSON object"},
		{plain, `{"approvals":"maybe"}`, "agent of the task: approvals: must be stop, approve, deny"},
		{plain, `[]`, "agent of the task: must be a JSON object"},
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
