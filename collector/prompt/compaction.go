package prompt

import (
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/record"
)

// An alert is the server's note about a compaction.
type alert struct {
	step  int // the call whose step ran the compaction, or -1
	first int // the first call of the send after it
}

// findCompactions sets epochs and summarized of every send.
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
}

func (t *transcript) compacted() bool {
	for i := range t.sends {
		if len(t.sends[i].alerts()) > 0 {
			return true
		}
	}
	return false
}

// alerts returns the compactions of the send. For each, the server stores a summary or a user
// message with JSON of type system_alert, under the step that ran it.
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
			if !record.IsAlert(m.Content.String()) || s.sent(m.Content.String()) {
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

// sent reports whether the text is one of the client's own messages.
func (s *send) sent(text string) bool {
	for _, m := range appendRequest(nil, s.request) {
		if m.content == text {
			return true
		}
	}
	return false
}
