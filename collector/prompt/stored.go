package prompt

import (
	"slices"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// An input is the input of the template for one call.
type input struct {
	messages history
	scrub    bool // delete the text before tool calls
	tools    chat.Value
}

// fromStored rebuilds prompts from stored messages and accepts each prompt whose length equals the
// server's count. If the parameter all is true, fromStored stops at the first prompt that is not
// accepted.
func (b *rebuild) fromStored(all bool) error {
	switch {
	case b.rollout.Conversation != nil && b.transcript.compacted:
		b.noteAll("stored: a compaction replaced the first system message of the conversation")
		return nil
	case b.transcript.system == "":
		b.noteAll("stored: the system message is unknown")
		return nil
	}
	incomplete := false
	err := b.transcript.replay(func(s *send, k int, in input) bool {
		incomplete = incomplete || len(s.stored) == 0
		switch i := s.first + k; {
		case s.epochs[k] > 0:
			b.note(i, "stored: a compaction ran before this call")
		case incomplete && i > 0:
			b.note(i, "stored: the server run has no messages")
		default:
			_, err := b.try(s, k, in, tokenize.SourceStored)
			if err == nil && s.witness != nil && k == s.shown {
				b.compare(s, in)
			}
		}
		return !all || s.gap == nil && b.calls[s.first+k].Grade != tokenize.Quarantined
	})
	b.withdraw()
	return err
}

// replay builds the template's input for every call from the system message, the client's own
// requests, the turns and the stored calls. It calls yield once per call, in order, until yield
// returns false or a send has no server run.
//
// The history matches the server's history, so it also lacks the text that the server removed from
// generations.
func (t *transcript) replay(yield func(s *send, k int, in input) bool) error {
	room := 1
	for i := range t.sends {
		room += 1 + len(t.sends[i].turns)
	}
	h := append(make(history, 0, room), message{role: roleSystem, content: t.system})
	for i := range t.sends {
		s := &t.sends[i]
		if s.blind {
			return nil
		}
		if i > 0 {
			h.reload()
		}
		scrub := t.rollout.Scrubs(s.request)
		var tools chat.Value
		if s.witness != nil {
			tools = s.witness.tools
		} else {
			list, err := toolsOf(t.agent(), s.request)
			if err != nil {
				return err
			}
			tools = toolList(list)
		}
		// If the request answers calls that wait for the client, the other messages of the request
		// come after the results and before the model's next call.
		asked := appendRequest(nil, s.request)
		if !answersCalls(s.request) {
			h, asked = append(h, asked...), nil
		}

		call, returns := -1, s.returns()
		for i := range s.turns {
			turn := &s.turns[i]
			if turn.Role == tokenize.RoleAssistant {
				h, asked = append(h, asked...), nil
				call++
				if !yield(s, call, input{h, scrub, tools}) {
					return nil
				}
				h = h.appendAssistant(turn.Content, s.callsOf(s.steps[call].ID), t.decisions)
				continue
			}
			m := message{role: roleTool, content: turn.Content, name: turn.ToolName}
			// A result names the step of its call. Results before the first call belong to an
			// earlier send and name a step of that send.
			if i := slices.IndexFunc(returns, func(r *letta.Message) bool { return s.stepIndex(r.StepID) == call }); i >= 0 {
				list := returns[i].ToolReturns
				returns = slices.Delete(returns, i, i+1)
				m.content = visibleReturn(turn.Content, list, t.decisions)
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

// appendRequest appends the messages of a request. It skips the client's answers to calls that
// waited for the client, because the results of these calls appear in a tool turn.
func appendRequest(h history, r *letta.LettaRequest) history {
	for _, m := range r.Messages {
		if c, ok := m.(*letta.MessageCreate); ok {
			h = append(h, message{role: c.Role, content: letta.InputText(c.Content)})
		}
	}
	return h
}

func answersCalls(r *letta.LettaRequest) bool {
	for _, m := range r.Messages {
		switch m.(type) {
		case *letta.ToolReturnCreate, *letta.ApprovalCreate:
			return true
		}
	}
	return false
}
