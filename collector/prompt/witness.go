package prompt

import (
	"context"
	"fmt"
	"slices"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

// witnessTries bounds the traces of a send that are asked for: the last call's may be
// late, or lost for a log-probability that is not finite.
const witnessTries = 3

// findWitnesses finds, for every send, the trace that shows what the model was given:
// the server reads the agent, its tools and the messages once per request, so that one
// trace speaks for all calls of its send before a compaction, and for no other send.
// Where there is none the proof has a gap, but for a send whose agent cannot have been
// read in two ways and is the same when it is read again.
func (b *rebuild) findWitnesses(ctx context.Context) error {
	for i := range b.transcript.sends {
		s := &b.transcript.sends[i]
		if s.blind || s.calls == 0 || s.epochs[0] > 0 {
			continue
		}
		if err := b.findWitness(ctx, s); err != nil {
			return err
		}
		if err := b.findGap(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// findWitness takes the trace of the last call of a send that has one. It leaves no
// notes: what is missing here may not be needed.
func (b *rebuild) findWitness(ctx context.Context, s *send) error {
	tries := 0
	for k := s.calls - 1; k >= 0 && tries < witnessTries; k-- {
		if s.summarized[k] || s.epochs[k] > 0 {
			continue
		}
		tries++
		t, err := b.rollout.Trace(ctx, s.steps[k].ID)
		if err != nil {
			return err
		}
		if t != nil && b.hear(s, k, t) {
			break
		}
	}
	return nil
}

// hear takes what the trace of call k shows for the witness of the send, or for a gap in
// its proof where the trace contradicts the turn or the agent. It reports false where the
// trace shows nothing.
func (b *rebuild) hear(s *send, k int, t *record.Trace) bool {
	read, err := readTrace(t, b.transcript.decisions, b.systemOver(s))
	if err != nil {
		return false
	}
	c := &b.calls[s.first+k]
	if !read.answer.Proves(c.OutputIDs) {
		s.gap = &gap{reason: tokenize.ReasonNoPrompt, note: "the trace of step " + s.steps[k].ID + " answers with other tokens than the turn", contradicted: true}
		return true
	}
	read.answer.Describe(c)
	b.finish.learn(read.answer)
	if read.tools, err = shownTools(read.tools, b.transcript.agent(), s.request); err == nil {
		s.witness, s.shown = read, k
	} else {
		s.gap = &gap{reason: tokenize.ReasonNoPrompt, note: err.Error(), contradicted: true}
	}
	return true
}

// unstorable explains why a call can lack a trace although the server keeps traces.
const unstorable = "the engine gave a log-probability that is NaN or infinite, and the server cannot store such a trace"

// traceLost reports whether each call of the send with a useful trace has a log-probability
// that the server cannot store in a trace.
func (b *rebuild) traceLost(s *send) bool {
	lost := false
	for k := range s.calls {
		if s.summarized[k] || s.epochs[k] > 0 {
			continue
		}
		if lost = unstored(&b.calls[s.first+k]); !lost {
			return false
		}
	}
	return lost
}

// unstored reports whether the call has a log-probability that is NaN or infinite. An answer
// has null in its place.
func unstored(c *tokenize.Call) bool {
	return slices.ContainsFunc(c.Logprobs, func(v float32) bool { return v-v != 0 })
}

// systemOver is the text that the model was given in place of the one that the trace
// of the send shows, which its request overrode or added to; empty where the trace
// shows what was given.
func (b *rebuild) systemOver(s *send) string {
	if overrides(s.request) {
		return b.transcript.system
	}
	return ""
}

// overrides reports whether the system message in a trace is not the model's: the
// native path reads neither override_system nor client_skills.
func overrides(r *letta.LettaRequest) bool {
	return r.OverrideSystem != nil && *r.OverrideSystem != "" || len(r.ClientSkills) > 0
}

// findGap finds the gap in the proof of a send of which no trace shows all that a prompt
// is made of.
func (b *rebuild) findGap(ctx context.Context, s *send) error {
	tools := serverTools(b.transcript.agent(), s.request)
	switch {
	case s.gap != nil:
	case toolsVary(b.transcript.agent()) && len(tools) > 1:
		s.gap = &gap{reason: tokenize.ReasonToolOrder, note: "the agent's tool rules may give each call other tools: only its own trace shows them"}
	case s.witness != nil && !overrides(s.request):
	case s.witness == nil && len(tools) > 1 && b.traceLost(s):
		s.gap = &gap{reason: tokenize.ReasonTraceLost, note: "no trace of this request shows in which order the server read its tools: " + unstorable}
	case s.witness == nil && len(tools) > 1:
		s.gap = &gap{reason: tokenize.ReasonToolOrder, note: fmt.Sprintf(
			"no trace of this request shows in which order the server read the agent's %d tools", len(tools))}
	default:
		why, changed, err := b.unchanged(ctx)
		if err != nil || why == "" {
			return err
		}
		s.gap = &gap{reason: tokenize.ReasonNoPrompt, note: why, contradicted: changed, takenOver: why == whyLate}
		if b.transcript.compacted() {
			s.gap.reason = tokenize.ReasonCompacted
		}
	}
	return nil
}
