package sink_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/rollout-rl/rollout/sink"
)

// wholeBy is the shortest definition of GroupLog: it rereads the log up to commit n.
func wholeBy(log []*sink.Commit, n int) (whole []sink.WholeGroup) {
	state := func(upTo int) (size map[string]int32, last map[string]map[int32]sink.CommittedSample, reason map[string]string) {
		size, last, reason = map[string]int32{}, map[string]map[int32]sink.CommittedSample{}, map[string]string{}
		for _, c := range log[:upTo] {
			for _, g := range c.Groups {
				size[g.ID] = max(size[g.ID], g.Size)
			}
			for _, s := range c.Samples {
				id := c.Groups[s.Group].ID
				if last[id] == nil {
					last[id] = map[int32]sink.CommittedSample{}
				}
				last[id][s.Index] = s
				if reason[id] == "" {
					reason[id] = s.Filtered
				}
			}
		}
		return size, last, reason
	}
	was := map[string]bool{}
	for upTo := 1; upTo <= n; upTo++ {
		size, last, reason := state(upTo)
		var seen []string
		for _, s := range log[upTo-1].Samples {
			id := log[upTo-1].Groups[s.Group].ID
			if id == "" || slices.Contains(seen, id) {
				continue
			}
			seen = append(seen, id)
			if was[id] || len(last[id]) < int(size[id]) {
				continue
			}
			was[id] = true
			if upTo < n {
				continue
			}
			w := sink.WholeGroup{ID: id, Size: size[id], Seq: int64(n), N: len(whole) + 1, Reason: reason[id]}
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
			whole = append(whole, w)
		}
	}
	return whole
}

// randomLog returns a realistic log: groups over several commits, failures superseded before and after
// their group is whole, raised sizes, samples without a group.
func randomLog(rng *rand.Rand) (log []*sink.Commit) {
	type place struct {
		id   string
		size int32
		open []int32 // indexes without an outcome
		lost []int32 // indexes that have failed
	}
	var groups []*place
	for n := range 3 + rng.IntN(5) {
		g := &place{id: []string{fmt.Sprintf("%032x", n), fmt.Sprintf("task %d", n)}[n%2], size: int32(1 + rng.IntN(5))}
		for i := range g.size {
			g.open = append(g.open, i)
		}
		groups = append(groups, g)
	}
	for seq := range int64(4 + rng.IntN(8)) {
		c := &sink.Commit{Version: sink.CommitVersion, Seq: seq + 1, RunID: "run"}
		places := map[sink.CommittedGroup]int32{}
		add := func(id string, size, index int32, fails bool) {
			g := sink.CommittedGroup{ID: id, Size: size}
			at, ok := places[g]
			if !ok {
				at = int32(len(c.Groups))
				places[g] = at
				c.Groups = append(c.Groups, g)
			}
			s := sink.CommittedSample{Key: fmt.Sprintf("%s-%d", id, index), Attempt: int32(seq) + 1, Group: at, Index: index}
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
			switch r := rng.IntN(12); {
			case r == 0:
				add("", 1, 0, false)
			case r == 1: // the size is raised
				g.open = append(g.open, g.size)
				g.size++
			case r < 4 && len(g.lost) > 0:
				i := rng.IntN(len(g.lost))
				fails := rng.IntN(3) == 0
				add(g.id, g.size, g.lost[i], fails)
				if !fails {
					g.lost = slices.Delete(g.lost, i, i+1)
				}
			case len(g.open) > 0:
				i := rng.IntN(len(g.open))
				fails := rng.IntN(4) == 0
				add(g.id, g.size, g.open[i], fails)
				if fails {
					g.lost = append(g.lost, g.open[i])
				}
				g.open = slices.Delete(g.open, i, i+1)
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
		var groups sink.GroupLog
		open := map[string]bool{}
		for i, c := range log {
			got, want := groups.Add(c), wholeBy(log, i+1)
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d, commit %d:\n%+v\nwant:\n%+v", seed, i+1, got, want)
			}
			found += len(got)
			for _, s := range c.Samples {
				if id := c.Groups[s.Group].ID; id != "" {
					open[id] = true
				}
			}
		}
		for i := range log {
			for _, w := range wholeBy(log, i+1) {
				delete(open, w.ID)
			}
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
}
