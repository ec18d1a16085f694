package prompt

import (
	"encoding/json"
	"fmt"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// emptyParameters is what the server gives a client tool without parameters.
const emptyParameters = `{"type":"object","properties":{}}`

// toolsOf is the list of tools of one request as the template is given it: the
// agent's in the order of the names, then the client's, of which one of the same
// name takes the place of the agent's. Tools that are not named keep AgentState's
// order, after the others. It is Undefined where there are no tools.
//
// Source: agents/letta_agent_v3.py:2039-2074, helpers/tool_execution_helper.py:89.
func toolsOf(agent *letta.AgentState, request *letta.LettaRequest, order []string) (chat.Value, error) {
	client := make(map[string]bool, len(request.ClientTools))
	for i := range request.ClientTools {
		client[request.ClientTools[i].Name] = true
	}
	var list []chat.Value
	for _, t := range inOrder(agent.Tools, order) {
		if client[text(t.Name)] {
			continue
		}
		schema, err := chat.FromJSON(t.JSONSchema)
		if err != nil {
			return chat.Value{}, fmt.Errorf("schema of tool %q: %w", text(t.Name), err)
		}
		if s := agent.LLMConfig.Strict; s != nil && *s {
			schema = strict(schema)
		}
		list = append(list, function(schema))
	}
	for i := range request.ClientTools {
		t := &request.ClientTools[i]
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
		list = append(list, function(chat.MapValue(d)))
	}
	if len(list) == 0 {
		return chat.Value{}, nil
	}
	return chat.ListValue(list...), nil
}

func function(schema chat.Value) chat.Value {
	d := chat.NewMap(2)
	d.Set("type", chat.StringValue("function"))
	d.Set("function", schema)
	return chat.MapValue(d)
}
