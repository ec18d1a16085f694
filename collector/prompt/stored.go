package prompt

import (
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// A conversation is what a template is given for one call.
type conversation struct {
	messages, tools chat.Value
	history         history // what messages is made of, where stored gives it
}

// stored rebuilds what the template was given for every call, from the system
// message, the client's own requests, the turns, and the calls that the server
// stored. yield is called once per call, in order, up to the first send of which
// nothing could be fetched.
//
// The history is that of the server: text that was cut out of a generation is
// missing here as it was missing there.
func (l *life) stored(yield func(s *send, k int, c conversation)) error {
	h := history{{role: roleSystem, content: l.system}}
	for i := range l.sends {
		s := &l.sends[i]
		if s.blind {
			return nil
		}
		if i > 0 {
			h.reload()
		}
		scrub := l.rollout.Scrubs(s.request)
		var tools chat.Value
		if s.witness != nil {
			tools = s.witness.tools
		} else {
			var err error
			if tools, err = toolsOf(l.agent, s.request); err != nil {
				return err
			}
		}
		// Where the request answers waiting calls, messages beside the answers are
		// delivered after the results, with the next call of the model.
		asked := appendRequest(nil, s.request)
		if !answersCalls(s.request) {
			h, asked = append(h, asked...), nil
		}

		call, returns := -1, s.returns()
		for t := range s.turns {
			turn := &s.turns[t]
			if turn.Role == tokenize.RoleAssistant {
				h, asked = append(h, asked...), nil
				call++
				yield(s, call, conversation{h.view(scrub), tools, h})
				h = h.appendAssistant(turn.Content, s.callsOf(s.steps[call].ID), l.how)
				continue
			}
			m := message{role: roleTool, content: turn.Content, name: turn.ToolName}
			var of *letta.Message
			if of, returns = s.takeReturn(returns, call); of != nil {
				list := of.ToolReturns
				m.content = visibleReturn(turn.Content, list, l.how)
				if len(list) > 0 {
					m.callID = list[0].ToolCallID
				}
			}
			h = append(h, m)
		}
		h = append(h, asked...)
	}
	return nil
}

// appendRequest adds the messages of a request. Answers to waiting calls are none:
// their results come as a tool turn.
func appendRequest(h history, r *letta.LettaRequest) history {
	if !letta.RawJSON(r.Input).IsNull() {
		return append(h, message{role: "user", content: letta.InputText(r.Input)})
	}
	for _, m := range r.Messages {
		if c, ok := m.(*letta.MessageCreate); ok {
			h = append(h, message{role: c.Role, content: letta.InputText(c.Content)})
		}
	}
	return h
}

// answersCalls reports whether a request answers calls that wait for the client.
func answersCalls(r *letta.LettaRequest) bool {
	for _, m := range r.Messages {
		switch m.(type) {
		case *letta.ToolReturnCreate, *letta.ApprovalCreate:
			return true
		}
	}
	return false
}
