package prompt

import (
	"fmt"
	"slices"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// given turns the tools of a trace into what the native path gave to the template:
// the same tools in the same order. Their text is AgentState's, because the body that
// a trace keeps names the members of a tool in an order of its own; a tool that a
// trace shows with another content than AgentState was changed since, and is an error.
func given(shown chat.Value, agent *letta.AgentState, request *letta.LettaRequest) (chat.Value, error) {
	if len(shown.Items()) == 0 {
		return chat.Value{}, nil
	}
	known := make(map[string]chat.Value)
	for _, t := range serverTools(agent, request) {
		f, err := serverTool(agent, t)
		if err != nil {
			return chat.Value{}, err
		}
		known[t.Name] = f
	}
	for i := range request.ClientTools {
		f, err := clientTool(&request.ClientTools[i])
		if err != nil {
			return chat.Value{}, err
		}
		known[request.ClientTools[i].Name] = f
	}
	var list []chat.Value
	for _, tool := range shown.Items() {
		f := member(tool, "function")
		name, _ := member(f, "name").Text()
		ours, is := known[name]
		switch {
		case !is:
			return chat.Value{}, fmt.Errorf("its trace shows a tool %q, which the agent did not have before the first request", name)
		case !sameTool(f, ours):
			return chat.Value{}, fmt.Errorf("its trace shows tool %q with content that has changed since before the first request", name)
		}
		delete(known, name)
		list = append(list, function(ours))
	}
	return chat.ListValue(list...), nil
}

// sameTool reports whether a trace shows the tool: each of its members, but for the
// mark of strictness, which a trace may leave out or take back. The parameters show
// what strictness does.
func sameTool(shown, ours chat.Value) bool {
	for _, key := range []string{"name", "description", "parameters"} {
		a, b := member(shown, key), member(ours, key)
		there := func(v chat.Value) bool { return v.Kind() != chat.Undefined && v.Kind() != chat.None }
		if !a.Equal(b) && (there(a) || there(b)) {
			return false
		}
	}
	return true
}

// member is the member of a dict, Undefined where v is none or has none of the name.
func member(v chat.Value, name string) chat.Value {
	m := v.Map()
	if m == nil {
		return chat.Value{}
	}
	value, _ := m.Get(name)
	return value
}

// serverTools are the agent's tools that a client tool of the request does not
// replace.
func serverTools(agent *letta.AgentState, request *letta.LettaRequest) []*letta.Tool {
	var list []*letta.Tool
	for i := range agent.Tools {
		name := agent.Tools[i].Name
		if !slices.ContainsFunc(request.ClientTools, func(c letta.ClientTool) bool { return c.Name == name }) {
			list = append(list, &agent.Tools[i])
		}
	}
	return list
}

// chooses reports whether the agent has a rule by which the server leaves tools out of
// single calls. A kind of rule that is not known counts as one.
//
// Source: helpers/tool_rule_solver.py:96 (get_allowed_tool_names).
func chooses(agent *letta.AgentState) bool {
	for _, raw := range agent.ToolRules {
		var rule struct {
			Type string `json:"type"`
		}
		_ = raw.Decode(&rule) // what cannot be read has no kind that is known
		switch rule.Type {
		case "exit_loop", "continue_loop", "required_before_exit", "requires_approval":
		default:
			return true
		}
	}
	return false
}

// changedSince names what of an agent is another than before, of all that a prompt is
// made of; it is empty where nothing is.
func changedSince(before, now *letta.AgentState) string {
	sameSchema := func(a, b letta.Tool) bool { return a.JSONSchema == b.JSONSchema }
	switch {
	case !slices.EqualFunc(before.Tools, now.Tools, sameSchema):
		return "list of tools"
	case !slices.Equal(before.ToolRules, now.ToolRules):
		return "list of tool rules"
	case !slices.Equal(before.Blocks, now.Blocks):
		return "list of memory blocks"
	case before.LLMConfig.JSON != now.LLMConfig.JSON:
		return "llm_config"
	case before.ResponseFormat != now.ResponseFormat:
		return "response_format"
	}
	return ""
}
