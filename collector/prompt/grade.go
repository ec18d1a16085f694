package prompt

import (
	"github.com/rollout-rl/rollout/tokenize"
)

// A gap is a missing part of the proof for the prompts of a send that were rebuilt from stored
// messages. There can be a gap even if every length matches the server's count.
type gap struct {
	reason tokenize.Reason
	note   string
	// takenOver is true if the only cause is that the agent was taken over.
	takenOver bool
	// contradicted is true if a record contradicts the prompts. Otherwise, only proof is missing.
	contradicted bool
}

// accept sets the prompt of call k if the number of ids equals the server's count. Otherwise, the
// call stays quarantined and accept appends the cause to the call's note.
func (b *rebuild) accept(s *send, k int, ids []int32, err error, source tokenize.PromptSource) bool {
	i := s.first + k
	c, want := &b.calls[i], s.steps[k].PromptTokens
	switch {
	case err != nil:
		b.note(i, "%s: %v", source, err)
		return false
	case want == nil:
		b.note(i, "%s: step %s has no prompt token count", source, s.steps[k].ID)
		return false
	case int64(len(ids)) != *want:
		b.note(i, "%s: the rebuilt prompt has %d tokens, but the server counted %d", source, len(ids), *want)
		c.Reason = tokenize.ReasonCountMismatch
		return false
	}
	c.PromptIDs, c.Source, c.Grade, c.Reason, c.TakenOver = ids, source, tokenize.CountVerified, tokenize.ReasonNone, false
	return true
}

// withdraw removes the prompts of the source stored from every send whose proof has a gap. A
// witness that was never compared also counts as a gap.
func (b *rebuild) withdraw() {
	for i := range b.transcript.sends {
		s := &b.transcript.sends[i]
		if s.gap == nil && s.witness != nil && !s.compared {
			s.gap = &gap{reason: tokenize.ReasonNoPrompt, note: "the trace of step " + s.steps[s.shown].ID + " was not compared, because the prompt of its call was not rebuilt"}
		}
		if s.gap == nil {
			continue
		}
		for k := range s.calls {
			i := s.first + k
			c := &b.calls[i]
			_, open := b.unverified[i] // the prompt fits at several times, so its text is uncertain
			switch {
			case open && s.gap.contradicted:
				delete(b.unverified, i)
			case open:
			case c.Source != tokenize.SourceStored:
				continue
			case !s.gap.contradicted:
				b.unverified[i] = unproven{c.PromptIDs, tokenize.SourceStored}
			}
			c.PromptIDs, c.Source, c.Grade, c.Reason = nil, tokenize.SourceNone, tokenize.Quarantined, s.gap.reason
			c.TakenOver = s.gap.takenOver
			b.note(i, "stored: %s", s.gap.note)
		}
	}
}

// gradeRest grades the calls that no source proved. A call after a compaction gets the reason
// compacted. Other calls keep their reason. If the parameter unverified is true, each call with an
// unproven prompt gets this prompt and the grade unverified.
func (b *rebuild) gradeRest(unverified bool) {
	for i := range b.transcript.sends {
		s := &b.transcript.sends[i]
		for k := range s.calls {
			if c := &b.calls[s.first+k]; c.Grade == tokenize.Quarantined && s.epochs[k] > 0 {
				c.Reason = tokenize.ReasonCompacted
			}
		}
	}
	if !unverified {
		return
	}
	for i, p := range b.unverified {
		if c := &b.calls[i]; c.Grade == tokenize.Quarantined {
			c.PromptIDs, c.Source, c.Grade, c.Reason = p.ids, p.source, tokenize.Unverified, tokenize.ReasonNone
		}
	}
}
