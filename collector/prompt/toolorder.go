package prompt

import (
	"context"
	"slices"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// orderTries bounds the traces of a send that are asked for the order of its tools.
const orderTries = 2

// orderTools finds, for every send, the order in which the server read the agent's
// tools. The server asks its database for none, so that it can differ between the
// agent and its sends while the number of tokens stays the same.
//
// A trace shows it. Where none may be fetched or none is there, AgentState's order is
// taken if the agent still has it, and the send is marked as unordered if not.
func (b *rebuild) orderTools(ctx context.Context, traces bool) error {
	if len(b.life.agent.Tools) < 2 {
		return nil
	}
	var unknown []*send
	for i := range b.life.sends {
		s := &b.life.sends[i]
		if s.blind || s.calls == 0 {
			continue
		}
		if traces {
			var err error
			if s.order, err = b.tracedOrder(ctx, s); err != nil {
				return err
			}
		}
		if s.order == nil {
			unknown = append(unknown, s)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	b.stats.requests.Add(1)
	now, err := b.from.AgentNow(ctx)
	if err != nil {
		return err
	}
	if !slices.Equal(toolNames(now), toolNames(b.life.agent)) {
		for _, s := range unknown {
			s.unordered = true
		}
	}
	return nil
}

// tracedOrder returns the names of the tools in the trace of one of the last calls of
// a send, nil where there is none to be had. It leaves no notes: what is missing here
// may not be needed.
func (b *rebuild) tracedOrder(ctx context.Context, s *send) ([]string, error) {
	tries := 0
	for k := s.calls - 1; k >= 0 && tries < orderTries; k-- {
		if s.summarized[k] {
			continue
		}
		tries++
		t, err := b.fetchTrace(ctx, s, k)
		if err != nil {
			return nil, err
		}
		if t == nil {
			continue
		}
		read, err := readTrace(t, b.life.how, "")
		c := &b.calls[s.first+k]
		if err != nil || !read.proves(c.OutputIDs) {
			continue
		}
		c.FinishReason, c.Version = read.finish, read.version
		b.ends.learn(read)
		if names := read.toolNames(); len(names) > 0 {
			return names, nil
		}
	}
	return nil, nil
}

// fetchTrace fetches the trace of call k of a send, once.
func (b *rebuild) fetchTrace(ctx context.Context, s *send, k int) (*letta.ProviderTrace, error) {
	if t, ok := s.traces[k]; ok {
		return t, nil
	}
	b.stats.requests.Add(1)
	t, err := b.from.Trace(ctx, s.steps[k].ID)
	if err != nil {
		return nil, err
	}
	if s.traces == nil {
		s.traces = make(map[int]*letta.ProviderTrace)
	}
	s.traces[k] = t
	return t, nil
}

// toolNames are the names of the tools of a traced call, in their order.
func (t *traced) toolNames() []string {
	var names []string
	for _, tool := range t.tools.Items() {
		name, ok := member(member(tool, "function"), "name").Text()
		if !ok {
			return nil
		}
		names = append(names, name)
	}
	return names
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

func toolNames(agent *letta.AgentState) []string {
	names := make([]string, len(agent.Tools))
	for i := range agent.Tools {
		names[i] = text(agent.Tools[i].Name)
	}
	return names
}

// inOrder returns the tools in the order of the names; those that are not named come
// after the others, as they are.
func inOrder(tools []letta.Tool, names []string) []*letta.Tool {
	list := make([]*letta.Tool, len(tools))
	for i := range tools {
		list[i] = &tools[i]
	}
	place := make(map[string]int, len(names))
	for i, name := range names {
		place[name] = i - len(names) // below the 0 of those that are not named
	}
	slices.SortStableFunc(list, func(a, b *letta.Tool) int { return place[text(a.Name)] - place[text(b.Name)] })
	return list
}
