package prompt

import (
	"encoding/json"
	"strings"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

// A life is what a client knows of one agent: what it was made of, and everything
// that was sent and answered.
type life struct {
	rollout *record.Rollout
	agent   *letta.AgentState
	system  string // text of the agent's, or the conversation's, first message
	sends   []send
	how     answers
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
	// witness is a trace of this send, of its call shown: it shows what all calls of
	// the send were given. It is nil where there is none.
	witness *traced
	shown   int
	heard   bool   // the witness was compared with what stored gives for its call
	doubt   *doubt // nil: what stored gives is proven by its count
	// blind says that the send names no server run, so that nothing of it could be
	// fetched: steps and stored are empty.
	blind bool
	// epochs holds, per call, how many compactions the agent had before it.
	epochs []int
	// summarized holds, per call, whether its step ran a compaction, in which case it
	// has no trace for good.
	summarized []bool
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

// callsOf returns the stored calls of a step: the server's own first, then those
// that wait for the client. The text of the turn does not do: what is stored went
// through the server's parser, which drops and rewrites.
func (s *send) callsOf(stepID string) []call {
	var own, waiting []call
	for i := range s.stored {
		m := &s.stored[i]
		if m.StepID != stepID {
			continue
		}
		switch m.Type {
		case letta.TypeToolCall:
			own = appendCalls(own, m.ToolCalls)
		case letta.TypeApprovalRequest:
			waiting = appendCalls(waiting, m.ToolCalls)
		}
	}
	return append(own, waiting...)
}

func appendCalls(calls []call, list []letta.ToolCall) []call {
	for i := range list {
		c := &list[i]
		calls = append(calls, call{id: c.ToolCallID, name: c.Name, args: arguments(c.Arguments)})
	}
	return calls
}

// stepIndex is the index of the send's call with the step id, or -1.
func (s *send) stepIndex(id string) int {
	for k := range s.steps {
		if s.steps[k].ID == id {
			return k
		}
	}
	return -1
}

// returns lists the tool return messages of the send in their order.
func (s *send) returns() []*letta.Message {
	var list []*letta.Message
	for i := range s.stored {
		if s.stored[i].Type == letta.TypeToolReturn {
			list = append(list, &s.stored[i])
		}
	}
	return list
}

// takeReturn removes from list, and returns, the first message that belongs to a
// tool turn after call k of the send: it names the call's step. That of a turn
// before the first call, k = -1, answers an earlier send and names a step of that
// one.
func (s *send) takeReturn(list []*letta.Message, k int) (*letta.Message, []*letta.Message) {
	for i, r := range list {
		if s.stepIndex(r.StepID) == k {
			return r, append(list[:i:i], list[i+1:]...)
		}
	}
	return nil, list
}

// findCompactions sets epochs and summarized of every send.
func (l *life) findCompactions() {
	epoch := 0
	for i := range l.sends {
		s := &l.sends[i]
		s.epochs, s.summarized = make([]int, s.calls), make([]bool, s.calls)
		for k := range s.epochs {
			s.epochs[k] = epoch
		}
		for _, a := range s.alerts() {
			epoch++
			if a.step >= 0 && a.step < s.calls {
				s.summarized[a.step] = true
			}
			for k := a.first; k < s.calls; k++ {
				s.epochs[k]++
			}
		}
	}
}

// compacted reports whether there was any compaction.
func (l *life) compacted() bool {
	for i := range l.sends {
		if len(l.sends[i].alerts()) > 0 {
			return true
		}
	}
	return false
}

// An alert is the server's word that it summarized the history.
type alert struct {
	step  int // the call whose step did it, or -1
	first int // the first call of the send that comes after it
}

// alerts lists the compactions of the send. The server stores a user message that
// is JSON of type system_alert, or a summary, under the step that ran it.
func (s *send) alerts() []alert {
	list := s.stored
	if len(list) == 0 {
		list = s.messages
	}
	var found []alert
	said := make(map[string]bool) // steps whose generation was seen
	for i := range list {
		m := &list[i]
		id := m.StepID
		switch m.Type {
		case letta.TypeAssistant, letta.TypeToolCall, letta.TypeApprovalRequest:
			said[id] = true
			continue
		case letta.TypeSummary:
		case letta.TypeUser:
			if !isAlert(m.Content.String()) || s.sent(m.Content.String()) {
				continue
			}
		default:
			continue
		}
		a := alert{step: s.stepIndex(id)}
		switch {
		case a.step >= 0 && said[id]:
			a.first = a.step + 1
		case a.step >= 0:
			a.first = a.step
		}
		found = append(found, a)
	}
	return found
}

// isAlert reports whether a user message is the server's note about a compaction.
func isAlert(text string) bool {
	var note struct {
		Type string `json:"type"`
	}
	return strings.HasPrefix(strings.TrimSpace(text), "{") &&
		json.Unmarshal([]byte(text), &note) == nil && note.Type == "system_alert"
}

// sent reports whether the text is one of the client's own messages.
func (s *send) sent(text string) bool {
	for _, m := range appendRequest(nil, s.request) {
		if m.content == text {
			return true
		}
	}
	return false
}
