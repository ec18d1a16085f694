package sink_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/tokenize"
)

// A court is a judge that filters out every other group, and checks the facts that it receives.
type court struct {
	t       *testing.T
	samples map[string]*tokenize.Sample // by key, as appended

	mu    sync.Mutex
	times map[string]int
}

// reasonOf returns the court's reason to filter out a group, or "".
func reasonOf(id string) string {
	if n := int(id[len(id)-1]); n%2 == 0 {
		return fmt.Sprintf("number %d \"is even\"", n)
	}
	return ""
}

// judgeEven filters out every other group.
func judgeEven(g *sink.GroupFacts) {
	keep := reasonOf(g.ID) == ""
	for i := range g.Samples {
		g.Samples[i].Keep, g.Samples[i].KeepReason = &keep, reasonOf(g.ID)
	}
}

func (c *court) judge(g *sink.GroupFacts) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.times[g.ID]++
	if len(g.Samples) != int(g.Size) {
		c.t.Errorf("%s: %d samples of %d reported", g.ID, len(g.Samples), g.Size)
	}
	for i := range g.Samples {
		f := &g.Samples[i]
		s := c.samples[f.Key]
		if s == nil || f.Index != int32(i) || f.Index != s.Index || int(f.Rows) != len(s.Rows) || int(f.Failures) != len(s.Failures) {
			c.t.Errorf("%s: sample %d is %+v", g.ID, i, *f)
			continue
		}
		if (f.Reward == nil) != (s.Reward == nil) || f.Reward != nil && *f.Reward != *s.Reward {
			c.t.Errorf("%s: reward of sample %d is %v, want %v", g.ID, i, f.Reward, s.Reward)
		}
		if f.VersionMin == nil && len(s.Rows) == 1 || len(s.Rows) == 1 && (*f.VersionMin != 3 || *f.VersionMax != 3+s.Index) || len(s.Rows) == 2 && f.VersionMin != nil {
			c.t.Errorf("%s: versions of sample %d from %v to %v", g.ID, i, f.VersionMin, f.VersionMax)
		}
	}
	judgeEven(g)
}

// tried returns n groups and their court. The second row of a sample has no versions.
func tried(t *testing.T, n int) (all []*tokenize.Sample, c *court) {
	t.Helper()
	b := sinktest.NewBuilder(9)
	c = &court{t: t, samples: map[string]*tokenize.Sample{}, times: map[string]int{}}
	for id := range n {
		for _, s := range group(b, id, []int{6, 1, 4}[id%3]) {
			if len(s.Rows) > 0 {
				r := &s.Rows[0]
				r.Versions = make([]int32, len(r.InputIDs))
				last := 0
				for i, m := range r.LossMask {
					r.Versions[i] = -1
					if m == 1 {
						r.Versions[i], last = 3, i
					}
				}
				r.Versions[last] = 3 + s.Index
			}
			copied := *s
			copied.Rows, copied.Failures = slices.Clone(s.Rows), slices.Clone(s.Failures)
			c.samples[s.Key] = &copied
			all = append(all, s)
		}
	}
	return all, c
}

// check compares the stored rows and entries with the court's decisions.
func (c *court) check(dir string) {
	t := c.t
	t.Helper()
	wholeVerify(t, dir)
	want, filtered := map[string]string{}, 0
	log, err := sink.ReadLogIn(nil, dir, func(commit *sink.Commit) {
		for _, s := range commit.Samples {
			reason := reasonOf(commit.Groups[s.Group].ID)
			if s.Failed() {
				reason = ""
			} else if reason != "" {
				filtered++
			}
			want[s.Key] = reason
			if s.Filtered != reason {
				t.Errorf("in the entry %s was filtered for %q, want %q", s.Key, s.Filtered, reason)
			}
		}
	})
	must(t, err)
	if len(want) != len(c.samples) {
		t.Errorf("%d samples in the log, want %d", len(want), len(c.samples))
	}
	for s := range log.Shards(sink.KindData) {
		for r := range each(t, log.Rows(s)) {
			reason := want[r.SampleKey]
			if r.Keep == nil || *r.Keep != (reason == "") || (r.KeepReason == nil) != (reason == "") || reason != "" && *r.KeepReason != reason {
				t.Errorf("%s: keep %v, keep_reason %v, want reason %q", r.SampleKey, r.Keep, r.KeepReason, reason)
			}
		}
	}
	ledger, err := sink.ReadLedger(nil, dir)
	must(t, err)
	if n := ledger.Filtered(); n != filtered || n == 0 {
		t.Errorf("Ledger.Filtered() = %d, want %d", n, filtered)
	}
	for id, n := range c.times {
		if n != 1 {
			t.Errorf("%s was judged %d times", id, n)
		}
	}
}

// TestJudge tests that each whole group is judged once, with the facts of its samples, by the writer or
// by recovery. Rows, entries and ledger have the decision. With CommitGroups even a group that is larger
// than a shard should be is in one commit.
func TestJudge(t *testing.T) {
	t.Parallel()
	for _, cfg := range []sink.Config{
		{Format: sink.Parquet, CommitGroups: true},
		{Format: sink.Arrow, CommitGroups: true, MaxBytesInFlight: 40_000},
		{Format: sink.Parquet, MaxBytesInFlight: 40_000},
		{Format: sink.Parquet, CommitGroups: true, MaxShardBytes: 3000},
	} {
		t.Run(fmt.Sprintf("%s/groups=%t/shard=%d", cfg.Format, cfg.CommitGroups, cfg.MaxShardBytes), func(t *testing.T) {
			t.Parallel()
			all, c := tried(t, 40)
			cfg.Judge = c.judge
			dir := t.TempDir()
			sinktest.Write(t, dir, cfg, all)
			c.check(dir)
			if len(c.times) != 40 {
				t.Errorf("%d groups were judged, want 40", len(c.times))
			}
			if cfg.CommitGroups {
				wholeGroups(t, dir, 40)
			}
		})
	}
}

// TestJudgeAfterRecovery tests that recovery judges the groups that it commits, once. It does not judge
// a partly committed group, which follows its committed part.
func TestJudgeAfterRecovery(t *testing.T) {
	t.Parallel()
	all, c := tried(t, 12)
	dir := t.TempDir()
	cfg := sink.Config{Judge: c.judge}
	rand.New(rand.NewPCG(1, 0)).Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	interruptedIn(t, dir, all, cfg)
	clear(c.times) // none of that was committed
	cfg.CommitGroups = true
	d := open(t, dir, cfg)
	if r := d.Recovered(); r.Replayed != int64(len(all)) {
		t.Errorf("recovered %+v, want %d samples", r, len(all))
	}
	c.check(dir)
	if len(c.times) != 12 {
		t.Errorf("%d groups were judged, want 12", len(c.times))
	}
}

// TestJudgeParts tests that the rest of a partly committed group is not judged. A late success in a
// group that was filtered out is filtered out too, in the same commit or by another process.
func TestJudgeParts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := sinktest.NewBuilder(3)
	one, two := group(b, 0, 9), group(b, 1, 4) // indexes 3 and 8 of the first fail
	again, later := nextAttempt(b.Sample(b.Row(10, 20)), one[3]), nextAttempt(b.Sample(b.Row(10, 20)), one[8])
	var judged []string
	cfg := sink.Config{CommitGroups: true, Judge: func(g *sink.GroupFacts) {
		judged = append(judged, g.ID)
		for i := range g.Samples {
			g.Samples[i].Keep = new(bool)
		}
	}}
	sinktest.Write(t, dir, sink.Config{}, two[:2])
	synctest.Test(t, func(t *testing.T) {
		d, _, end := grouped(t, dir, cfg)
		var feed sync.WaitGroup
		for i, s := range slices.Concat(one, two[2:], []*tokenize.Sample{again}) {
			feed.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond) // in order, in two syncs
				appendAll(t, d, s)
			})
		}
		feed.Wait()
		end()
	})
	sinktest.Write(t, dir, cfg, []*tokenize.Sample{later})
	for _, c := range readLog(t, dir).Commits {
		for _, s := range c.Samples {
			want := ""
			if c.Groups[s.Group].ID == "group-0" && !s.Failed() {
				want = "filtered"
			}
			if s.Filtered != want {
				t.Errorf("%s, attempt %d: filtered for %q, want %q", s.Key, s.Attempt, s.Filtered, want)
			}
		}
	}
	if !slices.Equal(judged, []string{"group-0"}) {
		t.Errorf("judged %q, want group-0 once", judged)
	}
	wholeVerify(t, dir)
}

// TestJudgeSizes tests groups whose samples disagree on the size. Waiting samples keep the largest size.
// A sample with group size 1 is not judged alone if other samples of its group wait or are committed,
// and the rest of a partly committed group is not judged.
func TestJudgeSizes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		sizes     []int32 // of the samples, each written by a process of its own
		committed bool    // the first one is committed before its group is whole
		commits   []int   // after each process
		judged    []int   // sizes of the judged groups
	}{
		{"raised", []int32{3, 3, 5, 5, 5}, false, []int{0, 0, 0, 0, 1}, []int{5}},
		{"lowered", []int32{3, 1, 3}, false, []int{0, 0, 1}, []int{3}},
		{"lowered after a commit", []int32{3, 1, 3}, true, []int{1, 2, 3}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			all := group(sinktest.NewBuilder(3), 0, len(tt.sizes))
			all[0], all[1] = all[1], all[0]
			var judged []int
			cfg := sink.Config{Judge: func(g *sink.GroupFacts) {
				if judged = append(judged, len(g.Samples)); len(g.Samples) != int(g.Size) {
					t.Errorf("judged by %d samples of %d", len(g.Samples), g.Size)
				}
			}}
			for i, s := range all {
				s.GroupSize = tt.sizes[i]
				cfg.CommitGroups = i > 0 || !tt.committed
				sinktest.Write(t, dir, cfg, all[i:i+1])
				if n := len(readLog(t, dir).Commits); n != tt.commits[i] || i+1 < len(all) && len(judged) > 0 {
					t.Errorf("after %d samples: %d commits, judged %v, want %d and none", i+1, n, judged, tt.commits[i])
				}
			}
			if !slices.Equal(judged, tt.judged) {
				t.Errorf("judged %v, want %v", judged, tt.judged)
			}
			if r := verify(t, dir); r.Samples != int64(len(all)) {
				t.Errorf("%d samples, want %d", r.Samples, len(all))
			}
		})
	}
}
