package prompt

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// emptyParameters is what the server gives a client tool without parameters.
const emptyParameters = `{"type":"object","properties":{}}`

// toolsOf is the list of tools of one request as the template is given it, with the
// agent's tools as AgentState lists them: in an order that is the server's only where
// there is at most one. The client's come after them, and one of the same name takes
// the place of the agent's. It is Undefined where there are no tools.
//
// Source: agents/letta_agent_v3.py:2039-2074, helpers/tool_execution_helper.py:89.
func toolsOf(agent *letta.AgentState, request *letta.LettaRequest) (chat.Value, error) {
	var list []chat.Value
	for _, t := range serverTools(agent, request) {
		f, err := serverTool(agent, t)
		if err != nil {
			return chat.Value{}, err
		}
		list = append(list, function(f))
	}
	for i := range request.ClientTools {
		f, err := clientTool(&request.ClientTools[i])
		if err != nil {
			return chat.Value{}, err
		}
		list = append(list, function(f))
	}
	if len(list) == 0 {
		return chat.Value{}, nil
	}
	return chat.ListValue(list...), nil
}

// serverTool is the schema of one of the agent's tools.
func serverTool(agent *letta.AgentState, t *letta.Tool) (chat.Value, error) {
	schema, err := chat.FromJSONText(string(t.JSONSchema))
	if err != nil {
		return chat.Value{}, fmt.Errorf("schema of tool %q: %w", t.Name, err)
	}
	if agent.LLMConfig.Strict {
		schema = strict(schema)
	}
	return schema, nil
}

// clientTool is the schema of a tool of the request.
func clientTool(t *letta.ClientTool) (chat.Value, error) {
	parameters := t.Parameters
	if len(parameters) == 0 || string(parameters) == "null" {
		parameters = json.RawMessage(emptyParameters)
	}
	p, err := chat.FromJSON(parameters)
	if err != nil {
		return chat.Value{}, fmt.Errorf("parameters of client tool %q: %w", t.Name, err)
	}
	d := chat.NewMap(3)
	d.Set("name", chat.StringValue(t.Name))
	if t.Description != nil {
		d.Set("description", chat.StringValue(*t.Description))
	} else {
		d.Set("description", chat.NoneValue())
	}
	d.Set("parameters", p)
	return chat.MapValue(d), nil
}

func function(schema chat.Value) chat.Value {
	d := chat.NewMap(2)
	d.Set("type", chat.StringValue("function"))
	d.Set("function", schema)
	return chat.MapValue(d)
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

// toolsVary reports whether the agent has a rule by which the server leaves tools out of
// single calls. A kind of rule that is not known counts as one.
//
// Source: helpers/tool_rule_solver.py:96 (get_allowed_tool_names).
func toolsVary(agent *letta.AgentState) bool {
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
