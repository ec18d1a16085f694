package prompt

import (
	"slices"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

// A transcript contains everything that is known of one agent: its state, and all that was sent,
// answered and stored.
type transcript struct {
	rollout *record.Rollout
	system  string // text of the first message of the agent or conversation; empty if unknown
	sends   []send
	// decisions covers all sends, because a call and its answer are in different requests.
	decisions decisions
	compacted bool // the server summarized the history
}

// agent returns the state of the agent before the first send.
func (t *transcript) agent() *letta.AgentState { return t.rollout.Agent }

// mostRoom bounds the capacity for the longest prompt, because the server's count is not trusted.
const mostRoom = 1 << 18

// longestPrompt returns the server's count for the longest prompt, at most mostRoom.
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

// A send is one request that was answered with turns, and the record of its server run.
type send struct {
	request  *letta.LettaRequest
	messages letta.Messages // of the answer
	turns    []tokenize.Turn
	first    int // index of the send's first call within the sample
	calls    int // number of calls

	// blind means that the send names no server run. steps and stored are then empty.
	blind  bool
	steps  []letta.Step   // steps with an output, oldest first: one per call
	stored letta.Messages // of the server run, oldest first

	// epochs holds, per call, the number of compactions before it.
	epochs []int
	// summarized holds, per call, whether its step ran a compaction. Such a step never has a trace.
	summarized []bool

	// witness is the trace of the send's call shown. It shows the input of all calls of the send.
	// It is nil if there is none.
	witness  *traced
	shown    int
	compared bool // the witness was compared with the rebuilt prompt of its call
	gap      *gap // nil: a stored prompt is proven by its count
}

// callsOf returns the stored calls of a step: first the calls that the server ran itself, then the
// calls that wait for the client. The text of the turn is not enough: the server's parser drops and
// rewrites parts of the calls.
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

func (s *send) stepIndex(id string) int {
	return slices.IndexFunc(s.steps, func(step letta.Step) bool { return step.ID == id })
}

func (s *send) returns() []*letta.Message {
	var list []*letta.Message
	for i := range s.stored {
		if s.stored[i].Type == letta.TypeToolReturn {
			list = append(list, &s.stored[i])
		}
	}
	return list
}

// decide collects the decisions for all calls that waited for the client. before contains messages
// from before the first send.
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
