package prompt

import (
	"slices"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

// A transcript contains everything that is known about one agent: its state, the requests, the
// answers and the stored messages.
type transcript struct {
	rollout *record.Rollout
	system  string // text of the first message of the agent or conversation; empty if unknown
	sends   []send
	// decisions covers all sends, because a call and the client's answer to the call belong to
	// different sends.
	decisions decisions
	compacted bool // the server summarized the history
}

// agent returns the state of the agent before the first send.
func (t *transcript) agent() *letta.AgentState { return t.rollout.Agent }

// mostRoom limits the capacity that is reserved for the longest prompt, because the server's count
// is not trusted.
const mostRoom = 1 << 18

// longestPrompt returns the server's token count for the longest prompt, limited to mostRoom.
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

// A send is one request, its answer with turns, and the records of its server run.
type send struct {
	request  *letta.LettaRequest
	messages letta.Messages // the answer's messages
	turns    []tokenize.Turn
	first    int // index of the send's first call within the sample
	calls    int

	// blind is true if the answer names no server run. In that case, the fields steps and stored
	// are empty.
	blind  bool
	steps  []letta.Step   // steps with an output, oldest first: one per call
	stored letta.Messages // the server run's messages, oldest first

	// epochs contains the number of compactions before each call.
	epochs []int
	// summarized is true for each call whose step ran a compaction. Such a step never has a trace.
	summarized []bool

	// witness is the trace of the call whose index is in the field shown. It shows the input of all
	// calls in the send before a compaction. It is nil if no usable trace was found.
	witness  *traced
	shown    int
	compared bool // the witness was compared with the rebuilt prompt of its call
	gap      *gap // if nil, a matching token count proves a prompt of the source stored
}

// callsOf returns the stored calls of a step: first the calls that the server ran itself, then the
// calls that wait for the client. The text of the turn is not enough, because the server's parser
// drops and rewrites parts of the calls.
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

// decide collects the decisions for all calls that waited for the client. The parameter before
// contains the messages that were stored before the first send.
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
