package show

import (
	"fmt"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/human"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/tokenize"
)

// AddHints adds hints on how to improve the run.
func (s *Summary) AddHints(c *config.Config, stats collector.Stats) { s.Hints = s.hints(c, stats) }

func (s *Summary) hints(c *config.Config, stats collector.Stats) []string {
	var out []string
	drives := c.Tasks.FromRuns == nil // otherwise agent.* has no effect
	if s.Forks*5 > s.Rows && !c.Agent.KeepReasoning && c.Agent.File == "" && drives {
		out = append(out, fmt.Sprintf("%d of %d rows are forks, which cost prompt tokens: agent.keep_reasoning would avoid most of them", s.Forks, s.Rows))
	}
	for _, e := range stats.Endpoints {
		// More samples in flight can be faster only if the limit's controller measured a gain that
		// lasted to the end.
		if g := e.Topped; g != nil && !e.Down && !e.Lost {
			out = append(out, fmt.Sprintf("%s finished %s samples/s with %d in flight and %s with %d, the most that server.max_in_flight allows: "+
				"--max-in-flight %d may be faster still (a Letta server with a default PostgreSQL fails near 30)",
				e.Name, human.Rate(g.After), g.To, human.Rate(g.Before), g.From, g.To+max(1, g.To/4)))
		}
	}
	if hint := s.Tap.hint(); hint != "" && s.Rows+len(s.Reasons) > 0 {
		out = append(out, hint)
	}
	numbered, unknown := s.Versions[tokenize.VersionTrace.String()], s.Versions[versionUnknown]
	if v := &c.Tokens.PolicyVersion; numbered > 0 && unknown > 0 && !v.Claimed && !v.Traces && v.URL.Reveal() == "" && drives {
		out = append(out, fmt.Sprintf("of %d sampled tokens the policy version is not known, and the engine has one: --policy-version trace reads the trace of each call for it", unknown))
	}
	if n := s.Reasons[tokenize.ReasonNoPrompt.String()]; n > 0 && c.Tokens.Tokenizer == "" && c.Tokens.Prompts != config.PromptsLiteral {
		out = append(out, fmt.Sprintf("%d prompts are not known because the server does not say what the model was shown; "+
			"with --tokenizer, the folder of the model's tokenizer and chat template, they can be rebuilt", n))
	}
	if n := s.Reasons[tokenize.ReasonCountMismatch.String()]; n > 0 {
		out = append(out, fmt.Sprintf("%d rebuilt prompts disagree with the server's count: rollout doctor, given the same settings, "+
			"says which of template, tokenizer or server differs", n))
	}
	if n := s.Reasons[tokenize.ReasonCompacted.String()]; n > 0 && drives {
		out = append(out, fmt.Sprintf("%d calls followed a compaction and cannot be known; a larger agent.context_window avoids it", n))
	}
	if n := s.Reasons[tokenize.ReasonNoTrace.String()]; n > 0 {
		out = append(out, fmt.Sprintf("%d calls have no trace, which alone holds the tokens of a server run that has ended: let the server keep traces "+
			"(LETTA_TRACK_PROVIDER_TRACE=true, its default, with their bodies); it cannot store one with a log-probability that is NaN or infinite", n))
	}
	if n := s.Reasons[tokenize.ReasonNotNative.String()]; n > 0 {
		out = append(out, fmt.Sprintf("%d calls were not made on the native path, which alone gives token ids: it takes a model of a provider of type sglang; "+
			"a stream also takes a handle that begins with sglang/, and no stream_tokens", n))
	}
	if n := s.Reasons[tokenize.ReasonToolOrder.String()]; n > 0 {
		out = append(out, fmt.Sprintf("of %d prompts nothing shows in which order the model was given its tools: %s", n, prompt.ToolOrderHint))
	}
	if n := s.Reasons[tokenize.ReasonTraceLost.String()]; n > 0 {
		out = append(out, fmt.Sprintf("%d prompts are not proven because the engine gave a log-probability that is NaN or infinite: the server cannot store the trace "+
			"of such a call; rollout tap sees what the model was shown", n))
	}
	if n := s.Reasons[tokenize.ReasonClock.String()]; n > 0 {
		out = append(out, fmt.Sprintf("%d prompts print a date, and nothing shows which one the model was given: %s", n, prompt.ClockHint))
	}
	if n := s.Reasons[tokenize.ReasonContinuity.String()]; n > 0 && len(c.Tokens.Tap) == 0 {
		out = append(out, fmt.Sprintf("%d prompts cannot be rebuilt: %s", n, prompt.ContinuityHint))
	}
	if n := s.Reasons[tokenize.ReasonGrade.String()]; n > 0 {
		out = append(out, fmt.Sprintf("%d samples have a lower grade than tokens.require %s; rollout inspect %s --failures shows their grades", n, c.Tokens.Require, human.Shell(s.Dir)))
	}
	return out
}
