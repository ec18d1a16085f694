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
	drives := c.Kind() == config.KindAgents // otherwise the agent.* settings have no effect
	if s.Forks*5 > s.Rows && !c.Agent.KeepReasoning && c.Agent.File == "" && drives {
		out = append(out, fmt.Sprintf("%d of %d rows are forks, which cost prompt tokens; to avoid most forks, set agent.keep_reasoning to true", s.Forks, s.Rows))
	}
	for _, e := range stats.Endpoints {
		// Suggest a larger limit only if the controller measured a gain that lasted until the end.
		if g := e.Topped; g != nil && !e.Down && !e.Lost {
			hint := fmt.Sprintf("%s finished %s samples/s with %d in flight (the limit set by server.max_in_flight), but only %s with %d. "+
				"A larger limit, such as --max-in-flight %d, might be even faster",
				e.Name, format.Rate(g.After), g.To, format.Rate(g.Before), g.From, g.To+max(1, g.To/4))
			if !c.Recorded() {
				hint += ". Note that a Letta server with PostgreSQL's default settings fails at about 30"
			}
			out = append(out, hint)
		}
	}
	if hint := s.Tap.hint(); hint != "" && s.Rows+len(s.Reasons) > 0 {
		out = append(out, hint)
	}
	numbered, unknown := s.Versions[tokenize.VersionTrace.String()], s.Versions[versionUnknown]
	if v := &c.Tokens.PolicyVersion; numbered > 0 && unknown > 0 && !v.Claimed && !v.Traces && v.URL.Reveal() == "" && drives {
		out = append(out, fmt.Sprintf("the policy version of %d sampled tokens is unknown, although the engine reports versions: to read the version from the trace of each call, use --policy-version trace", unknown))
	}
	reason := func(r tokenize.Reason, helps bool, format string, args ...any) {
		if n := s.Reasons[r.String()]; n > 0 && helps {
			out = append(out, fmt.Sprintf(format, append([]any{n}, args...)...))
		}
	}
	reason(tokenize.ReasonNoPrompt, c.Tokens.Tokenizer == "" && c.Tokens.Prompts != config.PromptsLiteral,
		"%d prompts are unknown because the server does not send them: to rebuild them, pass the folder of the model's tokenizer and chat template with --tokenizer")
	reason(tokenize.ReasonCountMismatch, true,
		"%d rebuilt prompts differ in length from the server's count: run rollout doctor with the same settings to find out whether the template, the tokenizer or the server is the cause")
	reason(tokenize.ReasonCompacted, drives,
		"%d calls followed a compaction, so their prompts are unknown: raise agent.context_window to avoid compactions")
	reason(tokenize.ReasonNoTrace, true, "%d calls have no trace, which is the only source of tokens for a finished server run. Let the server store traces with their bodies "+
		"(LETTA_TRACK_PROVIDER_TRACE=true, the default). The server cannot store a trace with a NaN or infinite log-probability")
	reason(tokenize.ReasonNotNative, true, "%d calls did not use the native path, which is the only path that returns token ids. Use a model from an sglang provider. "+
		"A streaming send also needs a model handle that begins with sglang/, and must not set stream_tokens")
	reason(tokenize.ReasonToolOrder, true, "%d prompts contain tools in an unknown order: %s", prompt.ToolOrderHint)
	reason(tokenize.ReasonTraceLost, true, "%d prompts are unproven because the server could not store traces with a NaN or infinite log-probability: "+
		"use rollout tap, which records prompts")
	reason(tokenize.ReasonClock, true, "%d prompts contain an unknown date: %s", prompt.ClockHint)
	reason(tokenize.ReasonContinuity, len(c.Tokens.Tap) == 0, "%d prompts cannot be rebuilt: %s", prompt.ContinuityHint)
	reason(tokenize.ReasonGrade, true,
		"%d samples have a grade below tokens.require (%s); to see their grades, run rollout inspect %s --failures", c.Tokens.Require, format.Shell(s.Dir))
	return out
}

// next returns the suggested next step. It returns "" if the run did not finish, is damaged, or has
// no kept sample. If the run has an error, the error's hint is shown instead.
func (s *Summary) next() string {
	if s.Outcome != "finished" || s.Error != "" || s.Committed == 0 {
		return ""
	}
	return fmt.Sprintf("rollout inspect %s --row 0 shows a row; in Python, rollout.Dataset(%q) reads all rows", format.Shell(s.Dir), s.Dir)
}
