package prompt

import (
	"fmt"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// shownTools turns the tools of a trace into what the native path gave to the template:
// the same tools in the same order. Their text is AgentState's, because the body that
// a trace keeps names the members of a tool in an order of its own; a tool that a
// trace shows with another content than AgentState was changed since, and is an error.
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
