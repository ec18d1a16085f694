package prompt

import (
	"context"
	"slices"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// Releases lists the releases of transformers whose rules give the server's prompts of a reply.
type Releases struct {
	// Fit contains the releases whose rules give every prompt: the ids of the turn, or else the
	// length that the server counted. It is nil if a call has neither.
	Fit []chat.Transformers
	// Apart reports whether the releases give different texts for any prompt.
	Apart bool
}

// ExamineReleases examines the reply once per release.
func ExamineReleases(ctx context.Context, m *Model, reply *collector.Reply, rollout *record.Rollout) (Releases, error) {
	var out Releases
	var first []Examined
	for _, release := range chat.AllTransformers() {
		by := *m
		by.Transformers = release
		calls, err := Examine(ctx, &by, reply, rollout)
		if err != nil {
			return Releases{}, err
		}
		if first == nil {
			first = calls
		}
		fit := len(calls) > 0
		for i := range calls {
			fit = fit && calls[i].Fits()
			out.Apart = out.Apart || !calls[i].Stored.same(&first[i].Stored) || !calls[i].Trace.same(&first[i].Trace)
		}
		if fit {
			out.Fit = append(out.Fit, release)
		}
	}
	return out, nil
}

// Other returns the first release that fits, if now does not fit.
func (r *Releases) Other(now chat.Transformers) (release chat.Transformers, ok bool) {
	if len(r.Fit) == 0 || slices.Contains(r.Fit, now) {
		return now, false
	}
	return r.Fit[0], true
}
