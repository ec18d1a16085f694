package sink

import (
	"maps"
	"slices"
)

// GroupFacts describes a whole group to Config.Judge.
type GroupFacts struct {
	ID   string // group_id
	Size int32  // group_size
	// Samples contains the outcomes of the samples, sorted by index. A sample that failed and later
	// succeeded can appear twice, with the failure first.
	Samples []SampleFacts
}

// SampleFacts describes the outcome of one sample in a group.
type SampleFacts struct {
	Index int32 // sample_index
	Key   string
	// Rows and Failures count the sample's rows and failures. A sample with failures and no rows
	// has failed.
	Rows, Failures int32
	// Class and Error describe the first failure. Both are empty if the sample has no failure.
	Class, Error string
	// Reward is the sample's reward, or nil if the sample was not scored.
	Reward *float64
	// VersionMin and VersionMax are the lowest and the highest policy version of the sampled tokens
	// in all rows. If any of these versions is unknown, or if no token was sampled, both are nil.
	VersionMin, VersionMax *int32

	// Judge can set Keep and KeepReason, which become the columns keep and keep_reason in all rows
	// of the sample. If Judge leaves Keep nil, both columns are null. If Judge sets Keep to false,
	// the sample must not be trained on. KeepReason then defaults to "filtered".
	Keep       *bool
	KeepReason string
}

// defaultReason is the reason for samples that Judge filters out without a reason.
const defaultReason = "filtered"

// A WholeGroup describes a group in which every sample has an outcome in the log.
type WholeGroup struct {
	ID   string
	Size int32
	// Seq is the number of the commit that made the group whole. N is the position of the group,
	// from 1, among all groups that this commit made whole. These groups are in the order of their
	// first samples in the commit.
	Seq int64
	N   int
	// Done counts the samples that did not fail, including samples without rows. Failed counts the
	// other samples. Filtered counts the samples in Done that must not be trained on. Reason is the
	// keep_reason of the first filtered sample.
	Done, Failed, Filtered int
	Reason                 string
	Rows                   int32 // data rows
}

// A GroupLog determines which groups have become whole. It uses the same rule as rollout.Following
// in Python. A group becomes whole only once. This happens at the end of the first commit after
// which the number of samples with an outcome is at least the size of the group. If a sample has
// failed, a later outcome of this sample replaces the failure. The size of a group is the largest
// size seen so far. After a group has become whole, later samples and a larger size have no effect.
//
// A GroupLog takes about 30 bytes per whole group, plus a few bytes per sample in the other groups.
// The zero GroupLog is empty. A GroupLog is not safe for concurrent use.
type GroupLog struct {
	open    map[string]*openGroup
	whole   map[KeyID]uint16 // index in reasons of the reason why the group was filtered out
	reasons []string         // reasons[0] is empty
}

type openGroup struct {
	size     int32
	outcomes map[int32]outcome // by sample index
	reason   string            // reason of the first sample that was filtered out
}

type outcome struct {
	rows             int32
	failed, filtered bool
}

// Add adds the next commit. Commits must be added in the order in which [ReadLogIn] delivers
// them. Add returns the groups that the commit makes whole, in the order of their first samples in
// the commit. Add ignores samples without a group id.
func (l *GroupLog) Add(c *Commit) []WholeGroup {
	if l.open == nil {
		l.open, l.whole, l.reasons = map[string]*openGroup{}, map[KeyID]uint16{}, []string{"", defaultReason}
	}
	// groups has the same indexes as c.Groups. An element is nil if the group has no id or is
	// already whole. A group that is listed with two sizes has two elements.
	groups := make([]*openGroup, len(c.Groups))
	for at, id := range c.Groups {
		g := l.open[id.ID]
		if id.ID == "" || g == nil && l.Whole(id.ID) {
			continue
		}
		if g == nil {
			g = &openGroup{outcomes: make(map[int32]outcome, min(id.Size, 8))}
			l.open[id.ID] = g
		}
		g.size = max(g.size, id.Size)
		groups[at] = g
	}
	var touched []int32 // indexes in groups, in the order of the groups' first samples in c
	seen := make([]bool, len(groups))
	for i := range c.Samples {
		s := &c.Samples[i]
		if s.Group < 0 || int(s.Group) >= len(groups) || groups[s.Group] == nil {
			continue
		}
		groups[s.Group].add(s)
		if !seen[s.Group] {
			seen[s.Group] = true
			touched = append(touched, s.Group)
		}
	}
	var list []WholeGroup
	for _, at := range touched {
		id, g := c.Groups[at].ID, groups[at]
		if l.open[id] != g || len(g.outcomes) < int(g.size) {
			continue
		}
		delete(l.open, id)
		l.whole[IDOf(id)] = l.reason(g.reason)
		w := g.counts()
		w.ID, w.Size, w.Seq, w.N = id, g.size, c.Seq, len(list)+1
		list = append(list, w)
	}
	return list
}

// add records the outcome of a sample. A new outcome replaces only a failure.
func (g *openGroup) add(s *CommittedSample) {
	if had, ok := g.outcomes[s.Index]; ok && !had.failed {
		return
	}
	g.outcomes[s.Index] = outcome{rows: s.Rows, failed: s.Failed(), filtered: s.Filtered != ""}
	if g.reason == "" {
		g.reason = s.Filtered
	}
}

func (g *openGroup) counts() (w WholeGroup) {
	for _, o := range g.outcomes {
		w.Rows += o.rows
		switch {
		case o.failed:
			w.Failed++
		case o.filtered:
			w.Filtered++
			fallthrough
		default:
			w.Done++
		}
	}
	w.Reason = g.reason
	return w
}

// maxReasons limits the number of different reasons that a GroupLog stores. Judge normally uses
// only a few.
const maxReasons = 1 << 10

// reason returns the index of a reason in l.reasons. If there are too many reasons, it returns the
// index of defaultReason.
func (l *GroupLog) reason(text string) uint16 {
	for at, r := range l.reasons {
		if r == text {
			return uint16(at)
		}
	}
	if len(l.reasons) == maxReasons {
		return l.reason(defaultReason)
	}
	l.reasons = append(l.reasons, text)
	return uint16(len(l.reasons) - 1)
}

// Whole reports whether the group with the given id is whole.
func (l *GroupLog) Whole(id string) bool {
	_, whole := l.whole[IDOf(id)]
	return whole
}

// known describes the part of a group that has already been committed. The zero value means that no
// part has been committed.
type known struct {
	whole   bool
	indexes []int32 // if the group is not whole, the indexes that have an outcome
	reason  string  // the reason why the group or a part of the group was filtered out
}

func (l *GroupLog) find(id string) (found known) {
	if g := l.open[id]; g != nil {
		found.reason = g.reason
		found.indexes = slices.Collect(maps.Keys(g.outcomes))
		return found
	}
	at, whole := l.whole[IDOf(id)]
	if whole {
		found.whole, found.reason = true, l.reasons[at]
	}
	return found
}
