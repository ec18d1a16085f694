package sink

import (
	"cmp"
	"slices"
	"strings"

	"github.com/rollout-rl/rollout/tokenize"
)

// A verdict contains the values of the columns keep and keep_reason for all rows of a sample.
type verdict struct {
	keep   *bool
	reason *string
}

// leftOut returns the verdict that filters out a sample for the given reason.
func leftOut(reason string) verdict {
	keep := false
	return verdict{keep: &keep, reason: &reason}
}

// filtered returns the value of CommittedSample.Filtered for sample s. v is the verdict on the
// sample.
func (v verdict) filtered(s *tokenize.Sample) string {
	if v.keep == nil || *v.keep || failed(s) {
		return ""
	}
	return *v.reason
}

// verdict returns the decision that Config.Judge recorded in f.
func (f *SampleFacts) verdict() verdict {
	switch {
	case f.Keep == nil:
		return verdict{}
	case !*f.Keep && f.KeepReason == "":
		return leftOut(defaultReason)
	case !*f.Keep:
		return leftOut(validText(f.KeepReason))
	case f.KeepReason == "":
		return verdict{keep: f.Keep}
	}
	reason := validText(f.KeepReason)
	return verdict{keep: f.Keep, reason: &reason}
}

// verdictOf returns the verdict on a sample that is not judged. k describes the committed part of
// its group. If the committed part was filtered out, the sample is filtered out too.
func verdictOf(k known) verdict {
	if k.reason == "" {
		return verdict{}
	}
	return leftOut(k.reason)
}

// known describes the part of a group that is in the log or in the open commit.
func (w *writer) known(id CommittedGroup) (found known) {
	if w.d.known == nil || id.ID == "" {
		return known{}
	}
	at, ok := w.places[id]
	if !ok {
		return w.d.known.find(id.ID)
	}
	found.whole = true // the writer writes only whole groups
	for i := range w.samples {
		if s := &w.samples[i]; s.Group == at && s.Filtered != "" {
			found.reason = s.Filtered
		}
	}
	return found
}

// judge calls Config.Judge for a group. It returns the facts about the samples, including the
// decisions, in the order of g.list. If the group must not be judged, judge returns nil, and the
// verdict is verdictOf(g.known).
func (w *writer) judge(g *heldGroup) []SampleFacts {
	if w.d.cfg.Judge == nil || len(g.known.indexes) > 0 || !g.whole() {
		return nil
	}
	slices.SortStableFunc(g.facts, func(a, b SampleFacts) int { return cmp.Compare(a.Index, b.Index) })
	w.d.cfg.Judge(&GroupFacts{ID: g.id.ID, Size: g.id.Size, Samples: g.facts})
	return g.facts
}

// judgeOne returns the verdict on a sample that is not held, such as the only sample of its group
// or a late sample.
func (w *writer) judgeOne(s *tokenize.Sample, id CommittedGroup, k known) verdict {
	if k.whole || len(k.indexes) > 0 || w.d.cfg.Judge == nil || id.ID == "" || id.Size != 1 {
		return verdictOf(k)
	}
	facts := []SampleFacts{factsOf(s)}
	w.d.cfg.Judge(&GroupFacts{ID: id.ID, Size: id.Size, Samples: facts})
	return facts[0].verdict()
}

// factsOf returns the facts about a sample for Judge. The facts share no memory with the sample.
func factsOf(s *tokenize.Sample) SampleFacts {
	f := SampleFacts{Index: s.Index, Key: s.Key, Rows: int32(len(s.Rows)), Failures: int32(len(s.Failures))}
	if len(s.Failures) > 0 {
		f.Class, f.Error = strings.Clone(s.Failures[0].Class), strings.Clone(s.Failures[0].Error)
	}
	if s.Reward != nil {
		f.Reward = new(*s.Reward)
	}
	var all *Range
	for i := range s.Rows {
		span, ok := policyVersions(&s.Rows[i])
		if !ok {
			return f
		}
		all = all.with(span.Min).with(span.Max)
	}
	if all != nil {
		f.VersionMin, f.VersionMax = &all.Min, &all.Max
	}
	return f
}
