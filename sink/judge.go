package sink

import (
	"cmp"
	"slices"

	"github.com/rollout-rl/rollout/tokenize"
)

// A verdict is what the rows of one sample get in keep and keep_reason.
type verdict struct {
	keep   *bool
	reason *string
}

// leftOut is the verdict on what is not to be trained on.
func leftOut(reason string) verdict {
	keep := false
	return verdict{keep: &keep, reason: &reason}
}

// filtered is CommittedSample.Filtered of the sample that the verdict is on.
func (v verdict) filtered(s *tokenize.Sample) string {
	if v.keep == nil || *v.keep || failed(s) {
		return ""
	}
	return *v.reason
}

// verdict is what Judge said of a sample.
func (f *SampleFacts) verdict() verdict {
	switch {
	case f.Keep == nil:
		return verdict{}
	case !*f.Keep && f.KeepReason == "":
		return leftOut(LeftOut)
	case !*f.Keep:
		return leftOut(validText(f.KeepReason))
	case f.KeepReason == "":
		return verdict{keep: f.Keep}
	}
	reason := validText(f.KeepReason)
	return verdict{keep: f.Keep, reason: &reason}
}

// verdictOf is the verdict on what comes after a part of its group: what was left out stays
// left out as a whole.
func verdictOf(k known) verdict {
	if k.reason == "" {
		return verdict{}
	}
	return leftOut(k.reason)
}

// known returns what commits, the next one included, hold of a group.
func (w *writer) known(id CommittedGroup) (found known) {
	if w.d.known == nil || id.ID == "" {
		return known{}
	}
	at, ok := w.places[id]
	if !ok {
		return w.d.known.find(id.ID)
	}
	found.whole = true // nothing else is written
	for i := range w.samples {
		if s := &w.samples[i]; s.Group == at && s.Filtered != "" {
			found.reason = s.Filtered
		}
	}
	return found
}

// judge asks Config.Judge about a group and returns what it said, in the order of g.list. It
// returns nil where the group is not judged: then g.known says what its rows get.
func (w *writer) judge(g *heldGroup) []SampleFacts {
	if w.d.cfg.Judge == nil || len(g.known.indexes) > 0 || !g.whole() {
		return nil
	}
	slices.SortStableFunc(g.facts, func(a, b SampleFacts) int { return cmp.Compare(a.Index, b.Index) })
	w.d.cfg.Judge(&GroupFacts{ID: g.id.ID, Size: g.id.Size, Samples: g.facts})
	return g.facts
}

// judgeOne is judge of a sample that is not held: of one that is a group, and of one that
// comes late.
func (w *writer) judgeOne(s *tokenize.Sample, k known) verdict {
	if k.whole || w.d.cfg.Judge == nil || s.GroupID == "" || s.GroupSize != 1 {
		return verdictOf(k)
	}
	facts := []SampleFacts{factsOf(s)}
	w.d.cfg.Judge(&GroupFacts{ID: s.GroupID, Size: s.GroupSize, Samples: facts})
	return facts[0].verdict()
}

// factsOf is what Judge is told of a sample. It shares no memory with the sample.
func factsOf(s *tokenize.Sample) SampleFacts {
	f := SampleFacts{Index: s.Index, Key: s.Key, Rows: int32(len(s.Rows)), Failures: int32(len(s.Failures))}
	if s.Reward != nil {
		reward := *s.Reward
		f.Reward = &reward
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
