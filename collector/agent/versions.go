package agent

import (
	"context"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/policy"
	"github.com/rollout-rl/rollout/tokenize"
)

// withVersions gives the calls their policy versions, as far as they are known, and returns
// all. What a trace says is there already where the prompts were found by traces.
func (g *agent) withVersions(ctx context.Context, r *collector.Reply, all []tokenize.Call) []tokenize.Call {
	calls := all
	for i := range r.Sends {
		if g.backend.cfg.Versions == nil || i >= len(g.spans) {
			break
		}
		n := 0
		for j := range r.Sends[i].Turns {
			if r.Sends[i].Turns[j].Role == tokenize.RoleAssistant {
				n++
			}
		}
		n = min(n, len(calls)) // that turns and calls disagree is found elsewhere
		g.findVersions(ctx, g.spans[i], calls[:n])
		calls = calls[n:]
	}
	return all
}

// findVersions gives the calls of one send their versions.
func (g *agent) findVersions(ctx context.Context, span *policy.Span, calls []tokenize.Call) {
	source := g.backend.cfg.Versions
	version, from := span.Version(ctx)
	for k := range calls {
		c := &calls[k]
		if c.Version != policy.Unknown { // the engine's word is more than ours
			source.Traced(c.Version, "", version)
			continue
		}
		if version == policy.Unknown {
			g.traceVersion(ctx, c)
			continue
		}
		c.Version, c.VersionFrom = version, from
	}
}

// traceVersion reads the version of a call from its trace. That it cannot be read is no
// failure of the sample: the version stays unknown.
func (g *agent) traceVersion(ctx context.Context, c *tokenize.Call) {
	source := g.backend.cfg.Versions
	if c.StepID == "" || len(c.OutputIDs) == 0 || !source.Asks() {
		return
	}
	t, err := g.rollout.Trace(ctx, c.StepID)
	if err != nil {
		return
	}
	if t == nil {
		source.Untraced()
		return
	}
	answer, err := t.Answer()
	if err != nil || !answer.Proves(c.OutputIDs) {
		return
	}
	c.Version, c.VersionFrom = answer.PolicyVersion, tokenize.VersionTrace
	source.Traced(answer.PolicyVersion, answer.Version, policy.Unknown)
}
