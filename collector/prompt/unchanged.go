package prompt

import (
	"context"
	"slices"

	"github.com/rollout-rl/rollout/collector/letta"
)

const (
	unshown = "no trace of this request shows the system message, and "
	whyLate = unshown + "the agent was read after a request was sent"
)

// unchanged reads the agent again. why explains why the server can have used another agent than the
// one before the first send. It is empty if the agent and its system message are the same. changed
// reports whether they differ.
func (b *rebuild) unchanged(ctx context.Context) (why string, changed bool, err error) {
	switch e := b.rollout; {
	case e.Conversation != nil:
		return unshown + "the first request creates the system message of a conversation", false, nil
	case len(b.transcript.agent().Blocks) > 0:
		return unshown + "the agent has memory blocks, which can change at any time", false, nil
	case b.transcript.compacted():
		return unshown + "a compaction wrote a new one", false, nil
	case e.Late: // the last case: a new rollout does not help with the cases above
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
		return "the agent's " + *b.changed + " differs from before the first request", true, nil
	}
	return "", false, nil
}

// changedSince names the part of the agent that differs, of all that affect a prompt. It is empty
// if none does.
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
