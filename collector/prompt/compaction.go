package prompt

import (
	"slices"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/record"
)

// An alert is the server's note about a compaction.
type alert struct {
	step  int // the call whose step ran the compaction, or -1
	first int // the send's first call after the compaction
}

// findCompactions sets the field compacted of the transcript and the fields epochs and summarized
// of every send.
func (t *transcript) findCompactions() {
	epoch := 0
	for i := range t.sends {
		s := &t.sends[i]
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
	t.compacted = epoch > 0
}

// alerts returns the compactions that ran during the send. For each compaction, the server stores a
// message under the step that ran the compaction. This message is a summary, or a user message that
// contains JSON of type system_alert.
func (s *send) alerts() []alert {
	list := s.stored
	if len(list) == 0 {
		list = s.messages
	}
	var found []alert
	said := make(map[string]bool) // ids of the steps for which a message from the model has been seen
	for i := range list {
		m := &list[i]
		id := m.StepID
		switch m.Type {
		case letta.TypeAssistant, letta.TypeToolCall, letta.TypeApprovalRequest:
			said[id] = true
			continue
		case letta.TypeSummary:
		case letta.TypeUser:
			text := m.Content.String()
			own := func(m message) bool { return m.content == text } // one of the client's own messages
			if !record.IsAlert(text) || slices.ContainsFunc(appendRequest(nil, s.request), own) {
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

// answered returns a send that has only the request and the messages of the answer.
func answered(of *record.Send) *send {
	return &send{request: of.Request, messages: of.Response.Messages}
}
