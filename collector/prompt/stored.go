package prompt

import (
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// A conversation is what a template is given for one call.
type conversation struct {
	messages, tools chat.Value
}

// stored rebuilds what the template was given for every call, from the system
// message, the client's own requests, the turns, and the calls that the server
// stored. yield is called once per call, in order; returning false ends it.
//
// The history is that of the server: text that was cut out of a generation is
// missing here as it was missing there.
func (l *life) stored(yield func(callIndex int, c conversation) bool) error {
	h := history{{role: roleSystem, content: l.system}}
	for i := range l.sends {
		s := &l.sends[i]
		if i > 0 {
			h.reload()
		}
		scrub := l.scrubs(s.request)
		tools, err := toolsOf(l.agent, s.request)
		if err != nil {
			return err
		}
		h = appendRequest(h, s.request)

		call, returns := 0, s.returns()
		for t := range s.turns {
			turn := &s.turns[t]
			if turn.Role == tokenize.RoleAssistant {
				if !yield(s.first+call, conversation{h.view(scrub), tools}) {
					return nil
				}
				h = h.appendAssistant(turn.Content, s.callsOf(s.steps[call].ID), l.how)
				call++
				continue
			}
			m := message{role: roleTool, content: turn.Content, name: turn.ToolName}
			if len(returns) > 0 {
				list := returns[0].Returns()
				returns = returns[1:]
				m.content = visibleReturn(turn.Content, list, l.how)
				if len(list) > 0 {
					m.callID = list[0].ToolCallID
				}
			}
			h = append(h, m)
		}
	}
	return nil
}

// appendRequest adds the messages of a request. Answers to waiting calls are none:
// their results come as a tool turn.
func appendRequest(h history, r *letta.LettaRequest) history {
	if !r.Input.IsZero() {
		return append(h, message{role: "user", content: r.Input.String()})
	}
	for _, m := range r.Messages {
		if c, ok := m.(*letta.MessageCreate); ok {
			h = append(h, message{role: c.Role, content: c.Content.String()})
		}
	}
	return h
}
