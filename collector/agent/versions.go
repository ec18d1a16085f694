package agent

import (
	"context"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/policy"
	"github.com/rollout-rl/rollout/tokenize"
)

// withVersions sets each known policy version in the calls, and returns all calls. If a prompt came
// from a trace, the version of its call is already set.
func (g *agent) withVersions(ctx context.Context, r *collector.Reply, all []tokenize.Call) []tokenize.Call {
	calls := all
	for i := range r.Sends {
		if g.backend.cfg.Versions == nil || i >= len(g.spans) {
			break
		}
		n := min(tokenize.AssistantTurns(r.Sends[i].Turns), len(calls)) // other code reports it if the number of turns differs from the number of calls
		g.findVersions(ctx, g.spans[i], calls[:n])
		calls = calls[n:]
	}
	return all
}

func (g *agent) findVersions(ctx context.Context, span *policy.Span, calls []tokenize.Call) {
	source := g.backend.cfg.Versions
	version, from := span.Version(ctx)
	wrong := false
	for k := range calls { // the engine's version takes precedence
		wrong = traced(source, &calls[k], "", version) || wrong
	}
	if version != policy.Unknown && from == tokenize.VersionURL && source.NextAudit() && len(calls) > 0 {
		wrong = g.traceVersion(ctx, &calls[len(calls)-1], version) || wrong
	}
	if wrong {
		version = policy.Unknown
	}
	for k := range calls {
		switch c := &calls[k]; {
		case hasVersion(c):
		case version != policy.Unknown:
			c.Version, c.VersionFrom = version, from
		default:
			g.traceVersion(ctx, c, policy.Unknown)
		}
	}
}

// traceVersion sets the version of a call from its trace. It reports whether the trace contradicts
// the version that the policy page proved. If the trace cannot be read, the version stays
// unchanged.
func (g *agent) traceVersion(ctx context.Context, c *tokenize.Call, page int32) (contradicted bool) {
	source := g.backend.cfg.Versions
	if c.Source == tokenize.SourceTap {
		return false // the version from the tap already comes from the engine
	}
	if c.StepID == "" || len(c.OutputIDs) == 0 || !source.NeedsTraces() {
		return false
	}
	t, err := g.rollout.Trace(ctx, c.StepID)
	if err != nil {
		return false
	}
	if t == nil {
		source.TraceMissing()
		return false
	}
	answer, err := t.Answer()
	if err != nil || !answer.Proves(c.OutputIDs) {
		return false
	}
	said := *c
	answer.Describe(&said)
	c.Version, c.Versions, c.VersionFrom = said.Version, said.Versions, said.VersionFrom
	if !hasVersion(c) {
		return source.Traced(policy.Unknown, answer.Version, page)
	}
	return traced(source, c, answer.Version, page)
}

// hasVersion reports whether the engine reported one or more versions for the call.
func hasVersion(c *tokenize.Call) bool { return c.Version != policy.Unknown || c.Versions != nil }

// traced passes every version that the engine reported for a call to the policy.Source. It reports
// whether any of these versions contradicts the version from the page.
func traced(source *policy.Source, c *tokenize.Call, word string, page int32) (contradicted bool) {
	if c.Version != policy.Unknown {
		return source.Traced(c.Version, word, page)
	}
	last := policy.Unknown
	for _, v := range c.Versions {
		if v != last && v != policy.Unknown {
			contradicted = source.Traced(v, word, page) || contradicted
			last = v
		}
	}
	return contradicted
}
