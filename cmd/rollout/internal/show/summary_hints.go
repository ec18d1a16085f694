package show

import (
	"fmt"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/tokenize"
)

// AddHints adds hints on how to improve the run.
func (s *Summary) AddHints(c *config.Config, stats collector.Stats) { s.Hints = s.hints(c, stats) }

func (s *Summary) hints(c *config.Config, stats collector.Stats) []string {
	var out []string
	drives := c.Tasks.FromRuns == nil // otherwise rollout does not drive the agents, and agent.* has no effect
	if s.Forks*5 > s.Rows && !c.Agent.KeepReasoning && c.Agent.File == "" && drives {
		out = append(out, fmt.Sprintf("%d of %d rows are forks, which cost prompt tokens: agent.keep_reasoning: true avoids most of them", s.Forks, s.Rows))
	}
	for _, e := range stats.Endpoints {
		// More samples in flight can increase the rate only if the controller of the limit measured
		// a gain that lasted until the end.
		if g := e.Topped; g != nil && !e.Down && !e.Lost {
			out = append(out, fmt.Sprintf("%s finished %s samples/s with %d in flight and %s with %d, the maximum that server.max_in_flight allows: "+
				"--max-in-flight %d can be even faster (a Letta server with a default PostgreSQL fails near 30)",
				e.Name, format.Rate(g.After), g.To, format.Rate(g.Before), g.From, g.To+max(1, g.To/4)))
		}
	}
	if hint := s.Tap.hint(); hint != "" && s.Rows+len(s.Reasons) > 0 {
		out = append(out, hint)
	}
	numbered, unknown := s.Versions[tokenize.VersionTrace.String()], s.Versions[versionUnknown]
	if v := &c.Tokens.PolicyVersion; numbered > 0 && unknown > 0 && !v.Claimed && !v.Traces && v.URL.Reveal() == "" && drives {
		out = append(out, fmt.Sprintf("the policy version of %d sampled tokens is unknown, although the engine has one: --policy-version trace reads it from the trace of each call", unknown))
	}
	reason := func(r tokenize.Reason, helps bool, format string, args ...any) {
		if n := s.Reasons[r.String()]; n > 0 && helps {
			out = append(out, fmt.Sprintf(format, append([]any{n}, args...)...))
		}
	}
	reason(tokenize.ReasonNoPrompt, c.Tokens.Tokenizer == "" && c.Tokens.Prompts != config.PromptsLiteral,
		"%d prompts are unknown because the server does not send them; pass --tokenizer, the folder of the model's tokenizer and chat template, to rebuild them")
	reason(tokenize.ReasonCountMismatch, true,
		"%d rebuilt prompts have a different token count than the server reports: run rollout doctor with the same settings to find out whether the template, the tokenizer or the server differs")
	reason(tokenize.ReasonCompacted, drives,
		"%d calls followed a compaction, so their prompts are unknown; a larger agent.context_window avoids compactions")
	reason(tokenize.ReasonNoTrace, true, "%d calls have no trace, the only source of tokens of a finished server run: let the server store traces with their bodies "+
		"(LETTA_TRACK_PROVIDER_TRACE=true, its default); it cannot store a trace with a NaN or infinite log-probability")
	reason(tokenize.ReasonNotNative, true, "%d calls did not use the native path, the only path that returns token ids: use a model of an sglang provider; "+
		"a stream also needs a handle that begins with sglang/, and no stream_tokens")
	reason(tokenize.ReasonToolOrder, true, "%d prompts have an unknown order of tools: %s", prompt.ToolOrderHint)
	reason(tokenize.ReasonTraceLost, true, "%d prompts are unproven because the engine returned a NaN or infinite log-probability: the server cannot store the trace "+
		"of such a call; rollout tap records the prompt")
	reason(tokenize.ReasonClock, true, "%d prompts contain an unknown date: %s", prompt.ClockHint)
	reason(tokenize.ReasonContinuity, len(c.Tokens.Tap) == 0, "%d prompts cannot be rebuilt: %s", prompt.ContinuityHint)
	reason(tokenize.ReasonGrade, true,
		"%d samples have a grade below tokens.require %s; rollout inspect %s --failures shows their grades", c.Tokens.Require, format.Shell(s.Dir))
	return out
}

// next returns the suggested next step. It returns "" if the run did not finish, is damaged, or has
// no kept sample. The error of such a run has its own hint.
func (s *Summary) next() string {
	if s.Outcome != "finished" || s.Error != "" || s.Committed == 0 {
		return ""
	}
	return fmt.Sprintf("rollout inspect %s --row 0 shows a row; in Python, rollout.Dataset(%q) reads all", format.Shell(s.Dir), s.Dir)
}
