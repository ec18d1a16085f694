package prompt

import (
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

// A transcript is all that is known of one agent: what it was made of, and everything
// that was sent, answered and stored.
type transcript struct {
	rollout *record.Rollout
	system  string // text of the agent's, or the conversation's, first message; empty: not known
	sends   []send
	// decisions are those about the calls of all sends: a call and its answer are in
	// different requests.
	decisions decisions
}

// agent is the agent before the first send.
func (t *transcript) agent() *letta.AgentState { return t.rollout.Agent }

// mostRoom bounds the room that is made for the longest prompt: a count is the server's word.
const mostRoom = 1 << 18

// longestPrompt is how many ids the longest prompt has, as far as the server counted, and
// mostRoom at most.
func (t *transcript) longestPrompt() int {
	most := int64(0)
	for i := range t.sends {
		for _, step := range t.sends[i].steps {
			if step.PromptTokens != nil {
				most = max(most, *step.PromptTokens)
			}
		}
	}
	return int(min(most, mostRoom))
}

// A send is one request that was answered with turns, with the record of its server run.
type send struct {
	request  *letta.LettaRequest
	messages letta.Messages // of the answer
	turns    []tokenize.Turn
	first    int // index of the send's first call within the sample
	calls    int // how many calls it has

	// blind says that the send names no server run, so that nothing of it could be
	// fetched: steps and stored are empty.
	blind  bool
	steps  []letta.Step   // those with an output, oldest first: one per call
	stored letta.Messages // of the server run, oldest first

	// epochs holds, per call, how many compactions the agent had before it.
	epochs []int
	// summarized holds, per call, whether its step ran a compaction; then it has no
	// trace for good.
	summarized []bool

	// witness is a trace of this send, of its call shown: it shows what all calls of
	// the send were given. It is nil where there is none.
	witness  *traced
	shown    int
	compared bool // the witness was compared with what stored gives for its call
	gap      *gap // nil: what stored gives is proven by its count
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
		default:
		}
	}
	return append(own, waiting...)
}

func appendCalls(calls []call, list []letta.ToolCall) []call {
	for i := range list {
		c := &list[i]
		calls = append(calls, call{id: c.ToolCallID, name: c.Name, arguments: c.Arguments})
	}
	return calls
}

// stepIndex returns the index of the send's call with the step id, or -1.
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

// decide collects what became of every call that had to wait for the client. before are
// messages from before the first send.
func (t *transcript) decide(before letta.Messages) {
	t.decisions = make(decisions)
	t.decisions.requested(before)
	t.decisions.stored(before)
	for i := range t.sends {
		s := &t.sends[i]
		t.decisions.answered(s.request, t.sends[:i])
		t.decisions.requested(s.messages)
		t.decisions.requested(s.stored)
	}
}
