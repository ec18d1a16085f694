package sink_test

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/tokenize"
)

// lives writes a dataset with several processes: groups split over them, failures retried before and
// after their group is whole, and some groups filtered out.
func lives(t *testing.T, dir string, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	b := sinktest.NewBuilder(seed)
	rest := []*tokenize.Sample{}
	for id := range 24 {
		rest = append(rest, group(b, id, 1+rng.IntN(6))...)
	}
	cfg := sink.Config{CommitGroups: true, MergeAt: 2 + rng.IntN(8), Judge: func(g *sink.GroupFacts) {
		if len(g.ID)%3 == 0 {
			for i := range g.Samples {
				g.Samples[i].Keep = new(bool)
			}
		}
	}}
	for attempt := int32(1); len(rest) > 0; attempt++ {
		rng.Shuffle(len(rest), func(i, k int) { rest[i], rest[k] = rest[k], rest[i] })
		n := len(rest)
		if attempt < 4 {
			n = rng.IntN(len(rest) + 1)
		}
		now := rest[:n]
		rest = slices.Clone(rest[n:])
		for _, s := range now {
			if len(s.Rows) == 0 && attempt < 4 && rng.IntN(2) == 0 {
				again := b.Sample(b.Row(20, 30))
				if rng.IntN(3) == 0 {
					again = b.Failure(3)
				}
				rest = append(rest, nextAttempt(again, s))
			}
		}
		sinktest.Write(t, dir, cfg, now)
	}
}

// followed prints the groups that Following returns for runs, in order, and the cursor after each.
const followed = `
import json, sys
from rollout import Following, Where
out = []
for run in sys.argv[1:]:
    given = []
    following = Following(run, timeout=0.01, interval=0.01, where=Where(keep="keep"))
    try:
        for group in following:
            cursor = following.cursor
            given.append({"id": group.id, "size": group.size, "failed": group.failed, "seq": cursor["seq"], "n": cursor["groups"]})
    except TimeoutError:
        pass
    out.append(given)
print(json.dumps(out))
`

// TestGroupsAgainstPython tests that GroupLog and rollout.Following agree, in datasets with merges.
func TestGroupsAgainstPython(t *testing.T) {
	t.Parallel()
	python := interpreter(t)
	args := []string{"-c", followed}
	for seed := range uint64(6) {
		dir := t.TempDir()
		lives(t, dir, seed)
		args = append(args, dir)
	}
	type given struct {
		ID     string
		Size   int32
		Failed int
		Seq    int64
		N      int
	}
	var all [][]given
	must(t, json.Unmarshal(runPython(t, python, args...), &all))
	for i, dir := range args[2:] {
		var groups sink.GroupLog
		var want []given
		if _, err := sink.ReadLogIn(nil, dir, func(c *sink.Commit) {
			for _, w := range groups.Add(c) {
				if w.Rows > 0 { // otherwise Following returns nothing
					want = append(want, given{w.ID, w.Size, w.Failed, w.Seq, w.N})
				}
			}
		}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(all[i], want) {
			t.Errorf("seed %d: Following returned\n%v\nwant\n%v", i, all[i], want)
		}
		if len(want) < 15 {
			t.Errorf("seed %d: %d groups", i, len(want))
		}
	}
}
