package sink

import (
	"crypto/sha256"
	"encoding/hex"
	"sync"
)

// GroupFacts is what Config.Judge is told of a group that is whole.
type GroupFacts struct {
	ID   string // group_id
	Size int32  // group_size
	// Samples holds the outcomes of its samples, by index. A sample that failed and succeeded
	// later may be there twice, first as the failure.
	Samples []SampleFacts
}

// SampleFacts is the outcome of one sample of a group.
type SampleFacts struct {
	Index int32 // sample_index
	Key   string
	// Rows and Failures count its rows of data and of failures. A sample without rows and
	// with failures has failed.
	Rows, Failures int32
	// Class and Error are those of its first failure; empty where it has none.
	Class, Error string
	// Reward is nil where the sample was not scored.
	Reward *float64
	// VersionMin and VersionMax span the policy versions of its sampled tokens, in all of its
	// rows; nil where one of these is unknown, and where it has no sampled token.
	VersionMin, VersionMax *int32

	// Keep and KeepReason are Judge's to set, and become the columns keep and keep_reason of
	// all rows of the sample. Nil: nothing was decided, both columns are null. False says
	// that the sample is not to be trained on; its reason is "filtered" where none is given.
	Keep       *bool
	KeepReason string
}

// LeftOut is the reason of samples that Judge left out without one.
const LeftOut = "filtered"

// A WholeGroup is a group of which each sample has an outcome in the log.
type WholeGroup struct {
	ID   string
	Size int32
	// Seq is the commit that made it whole, N its number among the groups that did so in
	// that commit, from 1, in the order of their first samples there.
	Seq int64
	N   int
	// Done counts the samples that did not fail, those without rows included, Failed those
	// that did. Filtered of those in Done are not to be trained on; Reason says why, that of
	// the first of them.
	Done, Failed, Filtered int
	Reason                 string
	Rows                   int32 // of data
}

// A GroupLog finds the groups that become whole, by the rule of rollout.Following in
// Python: a group is whole at the end of the commit in which as many of its samples have an
// outcome as its size says, and only once. A later outcome of a sample takes the place of its
// failure. The size is the largest that was said so far; one that is raised after the group
// was whole changes nothing, and neither do samples that come then.
//
// It takes some 30 bytes for each group that was whole, and some for each sample of the
// others. The zero GroupLog is empty. It is not safe for concurrent use.
type GroupLog struct {
	open    map[string]*openGroup
	whole   map[groupHash]uint16 // to the place in reasons of why it was left out
	reasons []string             // reasons[0] is none
}

// An openGroup is a group that is not whole.
type openGroup struct {
	size     int32
	outcomes map[int32]outcome // by index
	reason   string            // of the first sample that was left out
}

// An outcome is what the log has of a sample of an open group.
type outcome struct {
	rows             int32
	failed, filtered bool
}

// groupHash stands for a group's id.
type groupHash [16]byte

func hashOf(id string) (h groupHash) {
	if len(id) == hex.EncodedLen(len(h)) {
		var b [2 * len(h)]byte
		copy(b[:], id)
		if _, err := hex.Decode(h[:], b[:]); err == nil && hex.EncodeToString(h[:]) == id {
			return h
		}
	}
	sum := sha256.Sum256([]byte(id))
	copy(h[:], sum[:])
	return h
}

// Add takes the next commit, in the order of [ReadLogEach], and returns the groups that it
// makes whole, in the order of their first samples in it. Samples without a group id, and
// those of entries before version 3, which do not say it, are in none.
func (l *GroupLog) Add(c *Commit) []WholeGroup {
	if l.open == nil {
		l.open, l.whole, l.reasons = map[string]*openGroup{}, map[groupHash]uint16{}, []string{"", LeftOut}
	}
	// Of each group of the commit, by place: nil where it was whole before. A group with two
	// sizes has two places.
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
	var touched []int32 // places, in the order of the first samples
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
		l.whole[hashOf(id)] = l.reason(g.reason)
		w := g.counts()
		w.ID, w.Size, w.Seq, w.N = id, g.size, c.Seq, len(list)+1
		list = append(list, w)
	}
	return list
}

// add takes the outcome of a sample. Only a failure is replaced.
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

// maxReasons bounds the different reasons that are remembered; Judge has a few.
const maxReasons = 1 << 10

// reason is the place of a reason in l.reasons.
func (l *GroupLog) reason(text string) uint16 {
	for at, r := range l.reasons {
		if r == text {
			return uint16(at)
		}
	}
	if len(l.reasons) == maxReasons {
		return l.reason(LeftOut)
	}
	l.reasons = append(l.reasons, text)
	return uint16(len(l.reasons) - 1)
}

// Whole reports whether the group with the id is whole.
func (l *GroupLog) Whole(id string) bool {
	_, whole := l.whole[hashOf(id)]
	return whole
}

// knownGroups is what the writers need to know of groups that are in the log. It is nil where
// groups are not committed as they become whole.
type knownGroups struct {
	mu  sync.Mutex
	log GroupLog
}

// known is what commits hold of a group. The zero value: nothing.
type known struct {
	whole   bool
	indexes []int32 // that have an outcome, where it is not whole
	reason  string  // why the group, or a part of it, was left out
}

// add takes the next commit of the log.
func (k *knownGroups) add(c *Commit) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.log.Add(c)
}

func (k *knownGroups) find(id string) (found known) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if g := k.log.open[id]; g != nil {
		found.reason = g.reason
		for at := range g.outcomes {
			found.indexes = append(found.indexes, at)
		}
		return found
	}
	at, whole := k.log.whole[hashOf(id)]
	if whole {
		found.whole, found.reason = true, k.log.reasons[at]
	}
	return found
}
