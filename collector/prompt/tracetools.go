package prompt

import (
	"fmt"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// shownTools turns the tools of a trace into the native path's input for the template: the same
// tools in the same order. Their text comes from AgentState, because a trace lists the members of a
// tool in an order of its own. If a trace shows a tool with other content, the tool was changed
// since, and shownTools returns an error.
func shownTools(shown chat.Value, agent *letta.AgentState, request *letta.LettaRequest) (chat.Value, error) {
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
			return chat.Value{}, fmt.Errorf("the trace has tool %q, which the agent did not have before the first request", name)
		case !sameTool(f, ours):
			return chat.Value{}, fmt.Errorf("the trace has tool %q with other content than before the first request", name)
		}
		delete(known, name)
		list = append(list, function(ours))
	}
	return chat.ListValue(list...), nil
}

// sameTool reports whether the trace shows this tool. It compares all members except strict, which
// a trace can omit or reset. The parameters show the effect of strict.
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

// member returns the member of a dict. It returns Undefined if v is not a dict or lacks the name.
func member(v chat.Value, name string) chat.Value {
	m := v.Map()
	if m == nil {
		return chat.Value{}
	}
	value, _ := m.Get(name)
	return value
}
