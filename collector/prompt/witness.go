package prompt

import (
	"context"
	"fmt"
	"slices"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize"
)

// witnessTries limits the number of traces that are requested per send. One trace is not always
// enough: the trace of the last call can be late, or missing because a log-probability is not
// finite.
const witnessTries = 3

// findWitnesses finds, for every send, the trace that shows the model's input. The server reads the
// agent, its tools and the messages once per request. So one trace shows the input of all calls in
// its send before a compaction, but not of calls in other sends. Without a trace, two conditions
// must hold, or the proof has a gap. The server could have read the agent in only one way, and the
// reread agent is unchanged.
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

// findWitness looks for a usable trace of one of the last calls in a send, starting with the last
// call. It adds no notes, because the trace might not be needed.
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

// hear makes the trace of call k the witness of the send. If the trace contradicts the turn or the
// agent, hear instead sets the gap of the send. It returns false if the trace is unreadable.
func (b *rebuild) hear(s *send, k int, t *record.Trace) bool {
	read, err := readTrace(t, b.transcript.decisions, b.systemOver(s))
	if err != nil {
		return false
	}
	c := &b.calls[s.first+k]
	if !read.answer.Proves(c.OutputIDs) {
		s.gap = &gap{reason: tokenize.ReasonNoPrompt, note: "the trace of step " + s.steps[k].ID + " has different output tokens than the turn", contradicted: true}
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

const unstorable = "the engine returned a NaN or infinite log-probability, and the server cannot store such a trace"

// traceLost reports whether every call whose trace could be the witness has a log-probability that
// the server cannot store in a trace.
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

// unstored reports whether the call has a log-probability that is NaN or infinite. The server's
// answer shows such a log-probability as null.
func unstored(c *tokenize.Call) bool {
	return slices.ContainsFunc(c.Logprobs, func(v float32) bool { return v-v != 0 })
}

// systemOver returns the system message that the model received if the request overrides the system
// message, because the trace then shows the override instead. Otherwise, systemOver returns an
// empty string.
func (b *rebuild) systemOver(s *send) string {
	if overrides(s.request) {
		return b.transcript.system
	}
	return ""
}

// overrides reports whether the request sets override_system. The trace then shows the override,
// but the model does not receive it, because the native path ignores override_system.
func overrides(r *letta.LettaRequest) bool {
	return r.OverrideSystem != nil && *r.OverrideSystem != ""
}

// findGap sets the gap of a send if neither a trace nor the reread agent proves everything in its
// prompts.
func (b *rebuild) findGap(ctx context.Context, s *send) error {
	tools := serverTools(b.transcript.agent(), s.request)
	switch {
	case s.gap != nil:
	case toolsVary(b.transcript.agent()) && len(tools) > 1:
		s.gap = &gap{reason: tokenize.ReasonToolOrder, note: "the agent's tool rules can select different tools for each call; only the call's own trace shows them"}
	case s.witness != nil && !overrides(s.request):
	case s.witness == nil && len(tools) > 1 && b.traceLost(s):
		s.gap = &gap{reason: tokenize.ReasonTraceLost, note: "no trace of this request shows the order in which the server read the agent's tools: " + unstorable}
	case s.witness == nil && len(tools) > 1:
		s.gap = &gap{reason: tokenize.ReasonToolOrder, note: fmt.Sprintf(
			"no trace of this request shows the order in which the server read the agent's %d tools", len(tools))}
	default:
		why, changed, err := b.unchanged(ctx)
		if err != nil || why == "" {
			return err
		}
		s.gap = &gap{reason: tokenize.ReasonNoPrompt, note: why, contradicted: changed, takenOver: why == whyLate}
		if b.transcript.compacted {
			s.gap.reason = tokenize.ReasonCompacted
		}
	}
	return nil
}

const (
	unshown = "no trace of this request shows the system message, and "
	whyLate = unshown + "the agent was fetched only after a request had been sent"
)

// unchanged rereads the agent. The first result explains why the agent that the server used might
// differ from the agent before the first send. It is empty if the agent and its system message have
// not changed. The second result is true if a change was found.
func (b *rebuild) unchanged(ctx context.Context) (why string, changed bool, err error) {
	switch e := b.rollout; {
	case e.Conversation != nil:
		return unshown + "the first request creates the system message of a conversation", false, nil
	case len(b.transcript.agent().Blocks) > 0:
		return unshown + "the agent has memory blocks, which can change at any time", false, nil
	case b.transcript.compacted:
		return unshown + "a compaction wrote a new system message", false, nil
	case e.Late: // tested last, because a new attempt does not help in the cases above
		return whyLate, false, nil
	}
	if b.changed == nil {
		agent, system, err := b.rollout.AgentNow(ctx)
		if err != nil {
			return "", false, err
		}
		b.changed = new(changedSince(b.transcript.agent(), agent))
		if *b.changed == "" && system != b.transcript.system {
			*b.changed = "system message"
		}
	}
	if *b.changed != "" {
		return "the agent's " + *b.changed + " is not what it was before the first request", true, nil
	}
	return "", false, nil
}

// changedSince names a changed part of the agent that affects prompts, or returns an empty string
// if no such part has changed.
func changedSince(before, now *letta.AgentState) string {
	sameSchema := func(a, b letta.Tool) bool { return a.JSONSchema == b.JSONSchema }
	switch {
	case !slices.EqualFunc(before.Tools, now.Tools, sameSchema):
		return "list of tools"
	case !slices.Equal(before.ToolRules, now.ToolRules):
		return "list of tool rules"
	case !slices.Equal(before.Blocks, now.Blocks):
		return "list of memory blocks"
	case before.LLMConfig.JSON != now.LLMConfig.JSON:
		return "llm_config"
	case before.ResponseFormat != now.ResponseFormat:
		return "response_format"
	}
	return ""
}
