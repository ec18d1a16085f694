package prompt

import (
	"fmt"
	"slices"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// shownTools returns the tools in a trace, in the order of the trace and in the form in which the
// native path passes them to the template. The schemas come from AgentState and the request,
// because a trace does not keep the order of a tool's members. If the content of a tool in the
// trace differs, the tool was changed, and shownTools returns an error.
func shownTools(shown chat.Value, agent *letta.AgentState, request *letta.LettaRequest) (chat.Value, error) {
	if len(shown.Items()) == 0 {
		return chat.Value{}, nil
	}
	known, err := toolsOf(agent, request)
	if err != nil {
		return chat.Value{}, err
	}
	var list []tool
	for _, t := range shown.Items() {
		f := member(t, "function")
		name, _ := member(f, "name").Text()
		i := slices.IndexFunc(known, func(k tool) bool { return k.name == name })
		switch {
		case i < 0:
			return chat.Value{}, fmt.Errorf("the trace has a tool %q that the agent did not have before the first request", name)
		case !sameTool(f, known[i].schema):
			return chat.Value{}, fmt.Errorf("tool %q in the trace differs from the agent's tool before the first request", name)
		}
		list = append(list, known[i])
		known = slices.Delete(known, i, i+1)
	}
	return toolList(list), nil
}

// sameTool reports whether a tool in a trace has the same content as the agent's tool. It ignores
// the member strict, which a trace can omit or reset. The effect of strict is visible in the
// parameters.
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

// member returns the member with the given name from the dict v. It returns Undefined if v is not a
// dict or has no such member.
func member(v chat.Value, name string) chat.Value {
	m := v.Map()
	if m == nil {
		return chat.Value{}
	}
	value, _ := m.Get(name)
	return value
}
