package prompt

import (
	"context"
	"slices"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/tokenize/chat"
)

// Releases says by which releases of transformers a reply's prompts are what the server
// used.
type Releases struct {
	// Fit are those by whose rules every prompt is: it has the ids that the turn holds, or
	// else the length that the server counted. It is nil where neither is known of a call.
	Fit []chat.Transformers
	// Apart reports whether any prompt is another text by the rules of another release.
	Apart bool
}

// ExamineReleases examines the reply by the rules of each release.
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

// Other returns the release to use instead of now: the first one that fits, where now does
// not.
func (r *Releases) Other(now chat.Transformers) (release chat.Transformers, ok bool) {
	if len(r.Fit) == 0 || slices.Contains(r.Fit, now) {
		return now, false
	}
	return r.Fit[0], true
}
