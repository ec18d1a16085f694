package sink_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rollout-rl/rollout/sink"
)

// wholeBy is the shortest definition of GroupLog. It returns the groups that become whole, by commit.
func wholeBy(log []*sink.Commit) (whole [][]sink.WholeGroup) {
	size, reason, was := map[string]int32{}, map[string]string{}, map[string]bool{}
	last := map[string]map[int32]sink.CommittedSample{} // the last outcomes of each group
	for _, c := range log {
		for _, g := range c.Groups {
			size[g.ID] = max(size[g.ID], g.Size)
		}
		var seen []string
		for _, s := range c.Samples {
			id := c.Groups[s.Group].ID
			if last[id] == nil {
				last[id] = map[int32]sink.CommittedSample{}
			}
			last[id][s.Index] = s
			reason[id] = cmp.Or(reason[id], s.Filtered)
			if id != "" && !slices.Contains(seen, id) {
				seen = append(seen, id)
			}
		}
		var list []sink.WholeGroup
		for _, id := range seen {
			if was[id] || len(last[id]) < int(size[id]) {
				continue
			}
			was[id] = true
			w := sink.WholeGroup{ID: id, Size: size[id], Seq: c.Seq, N: len(list) + 1, Reason: reason[id]}
			for _, s := range last[id] {
				w.Rows += s.Rows
				switch {
				case s.Failed():
					w.Failed++
				case s.Filtered != "":
					w.Filtered++
					w.Done++
				default:
					w.Done++
				}
			}
			list = append(list, w)
		}
		whole = append(whole, list)
	}
	return whole
}

// randomLog returns a realistic log: groups over several commits, failures superseded before and after
// their group is whole, raised sizes, samples without a group.
func randomLog(rng *rand.Rand) (log []*sink.Commit) {
	type place struct {
		id   string
		done []bool // by index
	}
	groups := make([]*place, 3+rng.IntN(5))
	for n := range groups {
		groups[n] = &place{[]string{fmt.Sprintf("%032x", n), fmt.Sprintf("task %d", n)}[n%2], make([]bool, 1+rng.IntN(5))}
	}
	for seq := range int64(4 + rng.IntN(8)) {
		c := &sink.Commit{Version: sink.CommitVersion, Seq: seq + 1, RunID: "run"}
		add := func(id string, size, index int, fails bool) {
			g := sink.CommittedGroup{ID: id, Size: int32(size)}
			if !slices.Contains(c.Groups, g) {
				c.Groups = append(c.Groups, g)
			}
			s := sink.CommittedSample{
				Key: fmt.Sprintf("%s-%d", id, index), Attempt: int32(seq) + 1,
				Group: int32(slices.Index(c.Groups, g)), Index: int32(index),
			}
			switch {
			case fails:
				s.Failures = 1
			case rng.IntN(4) > 0:
				s.Rows = int32(1 + rng.IntN(3))
			}
			if !fails && rng.IntN(3) == 0 {
				s.Filtered = []string{"reward_std", "other"}[rng.IntN(2)]
			}
			c.Samples = append(c.Samples, s)
		}
		for range rng.IntN(9) {
			g := groups[rng.IntN(len(groups))]
			i := rng.IntN(len(g.done))
			switch r := rng.IntN(12); {
			case r == 0:
				add("", 1, 0, false)
			case r == 1: // the size is raised
				g.done = append(g.done, false)
			case !g.done[i]: // the first outcome, or one after a failure
				g.done[i] = rng.IntN(4) > 0
				add(g.id, len(g.done), i, !g.done[i])
			}
		}
		log = append(log, c)
	}
	return log
}

// TestGroupLog tests that a GroupLog finds the same groups as wholeBy, and keeps all open groups.
func TestGroupLog(t *testing.T) {
	t.Parallel()
	found := 0
	for seed := range uint64(400) {
		log := randomLog(rand.New(rand.NewPCG(seed, 0)))
		whole := wholeBy(log)
		var groups sink.GroupLog
		open := map[string]bool{}
		for i, c := range log {
			got := groups.Add(c)
			if !slices.Equal(got, whole[i]) {
				t.Fatalf("seed %d, commit %d:\n%+v\nwant:\n%+v", seed, i+1, got, whole[i])
			}
			found += len(got)
			for _, s := range c.Samples {
				open[c.Groups[s.Group].ID] = true
			}
		}
		delete(open, "")
		for _, w := range slices.Concat(whole...) {
			delete(open, w.ID)
		}
		if groups.Open() != len(open) {
			t.Fatalf("seed %d: Open() = %d, want %d: %q", seed, groups.Open(), len(open), slices.Sorted(maps.Keys(open)))
		}
	}
	if found < 400 {
		t.Errorf("%d groups in all", found)
	}
}

// TestGroupLogOfHostileEntries tests that no entry makes a GroupLog fail or use much memory.
func TestGroupLogOfHostileEntries(t *testing.T) {
	t.Parallel()
	var groups sink.GroupLog
	got := groups.Add(&sink.Commit{
		Seq:     1,
		Groups:  []sink.CommittedGroup{{ID: "huge", Size: 1<<31 - 1}, {ID: "none", Size: 0}, {ID: "below", Size: -5}},
		Samples: []sink.CommittedSample{{Group: -1}, {Group: 9}, {Group: 0, Index: -1}, {Group: 1}, {Group: 2, Index: 7}},
	})
	if len(got) != 2 || groups.Open() != 1 {
		t.Errorf("whole %+v, %d open", got, groups.Open())
	}
	got = groups.Add(&sink.Commit{ // a failure after a success does not count
		Seq: 2, Groups: []sink.CommittedGroup{{ID: "two", Size: 2}},
		Samples: []sink.CommittedSample{{Rows: 1}, {Failures: 1}, {Index: 1, Rows: 1}},
	})
	if len(got) != 1 || got[0].Done != 2 || got[0].Failed != 0 {
		t.Errorf("with a late failure: %+v", got)
	}
}
