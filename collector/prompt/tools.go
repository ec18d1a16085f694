package prompt

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// emptyParameters is the server's schema for a client tool without parameters.
const emptyParameters = `{"type":"object","properties":{}}`

// A tool is a tool that the model can call in one request, with its schema as the server passes it
// to the template.
type tool struct {
	name   string
	schema chat.Value
}

// toolsOf returns the tools of one request. The agent's tools come first, in the order of
// AgentState. If the agent has several tools, the server can use a different order. The client's
// tools follow and replace agent tools with the same name.
//
// Source: agents/letta_agent_v3.py:2039-2074, helpers/tool_execution_helper.py:89.
func toolsOf(agent *letta.AgentState, request *letta.LettaRequest) ([]tool, error) {
	var list []tool
	for _, t := range serverTools(agent, request) {
		schema, err := serverTool(agent, t)
		if err != nil {
			return nil, err
		}
		list = append(list, tool{t.Name, schema})
	}
	for i := range request.ClientTools {
		schema, err := clientTool(&request.ClientTools[i])
		if err != nil {
			return nil, err
		}
		list = append(list, tool{request.ClientTools[i].Name, schema})
	}
	return list, nil
}

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

// toolList returns the list of tools in the form that the template expects, or Undefined if the
// list is empty.
func toolList(tools []tool) chat.Value {
	if len(tools) == 0 {
		return chat.Value{}
	}
	list := make([]chat.Value, len(tools))
	for i := range tools {
		d := chat.NewMap(2)
		d.Set("type", chat.StringValue("function"))
		d.Set("function", tools[i].schema)
		list[i] = chat.MapValue(d)
	}
	return chat.ListValue(list...)
}

// serverTools returns the agent's tools that no client tool of the request replaces.
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

// toolsVary reports whether the agent has a rule that can hide tools from individual calls. It
// assumes that a rule of an unknown type can hide tools.
//
// Source: helpers/tool_rule_solver.py:96 (get_allowed_tool_names).
func toolsVary(agent *letta.AgentState) bool {
	for _, raw := range agent.ToolRules {
		var rule struct {
			Type string `json:"type"`
		}
		_ = raw.Decode(&rule) // an invalid rule has no known type
		switch rule.Type {
		case "exit_loop", "continue_loop", "required_before_exit", "requires_approval":
		default:
			return true
		}
	}
	return false
}
