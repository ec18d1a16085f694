package stream

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rollout-rl/rollout/sink"
)

// recalled is the maximum number of groups that are reported again with restored figures. Without a
// limit, the start of a process would read all rows of a run whose reader never acknowledges
// groups.
const recalled = 1024

// Recall restores the figures of the groups that must be reported again. It computes the figures
// from the rows and failures of these groups. Recall must be called after Load. If a row of a group
// is missing, the group has no figures. If the number of groups exceeds the constant recalled,
// Recall returns an error, and no group has figures.
func (t *Tracker) Recall(log *sink.Log) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.again) == 0 {
		return nil
	}
	if len(t.again) > recalled {
		return fmt.Errorf("cannot restore the sample counts and rewards of %d groups that are reported again (limit %d)", len(t.again), recalled)
	}
	wanted, stale := map[string]*sink.GroupFacts{}, map[string]bool{}
	for _, g := range t.again {
		wanted[g.ID] = &sink.GroupFacts{}
	}
	for i := range log.Commits {
		c := &log.Commits[i]
		in := func(g sink.WholeGroup) bool { return c.First() <= g.Seq && g.Seq <= c.Last() }
		if !slices.ContainsFunc(t.again, in) {
			continue
		}
		for _, s := range c.Shards {
			if s.Kind == sink.KindFailures {
				for f, err := range log.FailureFacts(s) {
					if err != nil {
						return err
					}
					if g := wanted[f.GroupID]; g != nil {
						g.Samples = append(g.Samples, sink.SampleFacts{Class: strings.Clone(f.Class), Error: strings.Clone(f.Error)})
					}
				}
				continue
			}
			for r, err := range log.Facts(s) {
				if err != nil {
					return err
				}
				if g := wanted[r.GroupID]; g != nil {
					g.Samples = append(g.Samples, factsOf(r))
					stale[r.GroupID] = stale[r.GroupID] || r.KeepReason != nil && *r.KeepReason == ReasonStale
				}
			}
		}
	}
	for _, g := range t.again {
		facts, rows := wanted[g.ID], 0
		for i := range facts.Samples {
			rows += int(facts.Samples[i].Rows)
		}
		if rows == int(g.Rows) && len(facts.Samples)-rows >= g.Failed {
			f, _ := figuresOf(facts)
			f.stale = new(stale[g.ID])
			t.figures[g.ID] = f
		}
	}
	return nil
}

// factsOf returns the facts about one row. Only the first row of a sample includes the sample's
// reward, so that each reward is counted once.
func factsOf(r *sink.StoredRow) sink.SampleFacts {
	f := sink.SampleFacts{Rows: 1}
	if r.PolicyVersionMin != nil && r.PolicyVersionMax != nil {
		f.VersionMin, f.VersionMax = new(*r.PolicyVersionMin), new(*r.PolicyVersionMax)
	}
	if r.Reward != nil && r.SegmentIndex == 0 {
		f.Reward = new(*r.Reward)
	}
	return f
}
