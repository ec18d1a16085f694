package prompt

import (
	"github.com/rollout-rl/rollout/tokenize"
)

// The grade of a rebuilt prompt is decided here, in this order:
//
//	accept     count_verified, where its length is the one that the server counted
//	withdraw   and back to quarantined, where the proof of its send has a gap
//	gradeRest  unverified, where that is asked for and nothing contradicts it

// A gap is what is missing in the proof of the prompts that stored gives for a send,
// although every length may agree.
type gap struct {
	reason tokenize.Reason
	note   string
	// takenOver says that the proof is missing only because the agent was taken over.
	takenOver bool
	// contradicted says that something shows the prompts to be others, and not only that
	// nothing shows them to be these.
	contradicted bool
}

// accept gives call k of the send the prompt if its length is the one that the server
// counted. A call that it refuses stays quarantined, and its note says why.
func (b *rebuild) accept(s *send, k int, ids []int32, err error, source tokenize.PromptSource) bool {
	i := s.first + k
	c, want := &b.calls[i], s.steps[k].PromptTokens
	switch {
	case err != nil:
		b.note(i, "%s: %v", source, err)
		return false
	case want == nil:
		b.note(i, "%s: step %s has no count to compare with", source, s.steps[k].ID)
		return false
	case int64(len(ids)) != *want:
		b.note(i, "%s: rebuilt %d tokens, the server counted %d", source, len(ids), *want)
		c.Reason = tokenize.ReasonCountMismatch
		return false
	}
	c.PromptIDs, c.Source, c.Grade, c.Reason, c.TakenOver = ids, source, tokenize.CountVerified, tokenize.ReasonNone, false
	return true
}

// withdraw takes the prompts of source stored back from the calls of every send whose
// proof has a gap. A witness that could not be compared with anything is one as well.
func (b *rebuild) withdraw() {
	for i := range b.transcript.sends {
		s := &b.transcript.sends[i]
		if s.gap == nil && s.witness != nil && !s.compared {
			s.gap = &gap{reason: tokenize.ReasonNoPrompt, note: "the trace of step " + s.steps[s.shown].ID + " could not be compared: its prompt was not rebuilt"}
		}
		if s.gap == nil {
			continue
		}
		for k := range s.calls {
			i := s.first + k
			c := &b.calls[i]
			_, open := b.unverified[i] // the clock left its text open
			switch {
			case open && s.gap.contradicted:
				delete(b.unverified, i)
			case open:
			case c.Source != tokenize.SourceStored:
				continue
			case !s.gap.contradicted:
				b.openTo(i, unproven{c.PromptIDs, tokenize.SourceStored})
			}
			c.PromptIDs, c.Source, c.Grade, c.Reason = nil, tokenize.SourceNone, tokenize.Quarantined, s.gap.reason
			c.TakenOver = s.gap.takenOver
			b.note(i, "stored: %s", s.gap.note)
		}
	}
}

// gradeRest decides about the calls that no source could prove. Those after a compaction
// have that for their reason; the others have theirs already. unverified says whether
// they are given the prompts that are not proven.
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
