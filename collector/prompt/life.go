package prompt

import (
	"encoding/json"
	"strings"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/tokenize"
)

// A life is what a client knows of one agent: what it was made of, and everything
// that was sent and answered.
type life struct {
	agent  *letta.AgentState
	system string // text of the agent's, or the conversation's, first message
	sends  []send
	how    answers
}

// A send is one request that was answered with turns, with what was fetched of
// its server run.
type send struct {
	request  *letta.LettaRequest
	messages letta.Messages // of the answer
	turns    []tokenize.Turn
	steps    []letta.Step   // those with an output, ascending: one per assistant turn
	stored   letta.Messages // of the server run, ascending
	first    int            // index of the send's first call within the sample
	calls    int
}

// fate collects what became of every call that had to wait for the client, over
// the whole life: a call and its answer are in different requests.
func (l *life) fate() {
	l.how = make(answers)
	var before letta.Messages
	for i := range l.sends {
		s := &l.sends[i]
		l.how.answered(s.request, before)
		l.how.requested(s.messages)
		l.how.requested(s.stored)
		before = append(before, s.messages...)
	}
}

// scrubs reports whether the server deletes the text before tool calls from the
// prompts of this request. Source: helpers/reasoning_helper.py:22-48.
func (l *life) scrubs(request *letta.LettaRequest) bool {
	c := &l.agent.LLMConfig
	return isFalse(c.PutInnerThoughtsInKwargs) && isFalse(c.EnableReasoner) &&
		c.MaxReasoningTokens != nil && *c.MaxReasoningTokens == 0 &&
		(request.OverrideModel == nil || *request.OverrideModel == "")
}

func isFalse(b *bool) bool { return b != nil && !*b }

// callsOf returns the stored calls of a step. The text of the turn does not do:
// what is stored went through the server's parser, which drops and rewrites.
func (s *send) callsOf(stepID string) []call {
	var calls []call
	for _, m := range s.stored {
		h := m.Head()
		if h.StepID == nil || *h.StepID != stepID {
			continue
		}
		var list []letta.ToolCall
		switch m := m.(type) {
		case *letta.ToolCallMessage:
			list = m.Calls()
		case *letta.ApprovalRequestMessage:
			list = m.Calls()
		}
		for i := range list {
			calls = append(calls, call{
				id:   text(list[i].ToolCallID),
				name: text(list[i].Name),
				args: arguments(text(list[i].Arguments)),
			})
		}
	}
	return calls
}

// returns lists the tool return messages of the send in their order: the k-th
// belongs to the k-th tool turn.
func (s *send) returns() []*letta.ToolReturnMessage {
	var list []*letta.ToolReturnMessage
	for _, m := range s.stored {
		if r, ok := m.(*letta.ToolReturnMessage); ok {
			list = append(list, r)
		}
	}
	return list
}

// compacted reports whether the server said that it summarized the history during
// the send. It says so by a user message that is JSON of type system_alert.
func (s *send) compacted() bool {
	for _, list := range []letta.Messages{s.messages, s.stored} {
		for _, m := range list {
			switch m := m.(type) {
			case *letta.SummaryMessage:
				return true
			case *letta.UserMessage:
				var alert struct {
					Type string `json:"type"`
				}
				t := m.Content.String()
				if strings.HasPrefix(strings.TrimSpace(t), "{") && json.Unmarshal([]byte(t), &alert) == nil && alert.Type == "system_alert" {
					return true
				}
			}
		}
	}
	return false
}
