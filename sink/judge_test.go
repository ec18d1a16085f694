package sink_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

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
	log, err := sink.ReadLogEach(dir, func(commit *sink.Commit) {
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
	ledger, err := sink.ReadLedger(dir)
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
// by recovery. Rows, entries and ledger have the decision.
func TestJudge(t *testing.T) {
	t.Parallel()
	for _, cfg := range []sink.Config{
		{Format: sink.Parquet, CommitGroups: true},
		{Format: sink.Arrow, CommitGroups: true, MaxBytesInFlight: 40_000},
		{Format: sink.Parquet, MaxBytesInFlight: 40_000},
	} {
		t.Run(fmt.Sprintf("%s/groups=%t", cfg.Format, cfg.CommitGroups), func(t *testing.T) {
			t.Parallel()
			all, c := tried(t, 40)
			cfg.Judge = c.judge
			dir := t.TempDir()
			sinktest.Write(t, dir, cfg, all)
			c.check(dir)
			if len(c.times) != 40 {
				t.Errorf("%d groups were judged, want 40", len(c.times))
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
	synctest.Test(t, func(t *testing.T) {
		d, err := sink.Create(dir, cfg) // no commit for five minutes
		must(t, err)
		ctx, kill := context.WithCancel(t.Context())
		wait := start(ctx, t, d)
		appendAll(t, d, all...)
		synctest.Wait()
		kill()
		_ = wait()
	})
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
// group that was filtered out is filtered out too.
func TestJudgeParts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := sinktest.NewBuilder(3)
	one, two := group(b, 0, 5), group(b, 1, 4) // index 3 of the first fails
	again := nextAttempt(b.Sample(b.Row(10, 20)), one[3])
	judged := map[string]int{}
	cfg := sink.Config{CommitGroups: true, Judge: func(g *sink.GroupFacts) {
		judged[g.ID]++
		for i := range g.Samples {
			g.Samples[i].Keep = new(bool)
		}
	}}
	sinktest.Write(t, dir, sink.Config{}, two[:2])
	for _, part := range [][]*tokenize.Sample{slices.Concat(one, two[2:]), {again}} {
		sinktest.Write(t, dir, cfg, part)
	}
	if len(judged) != 1 || judged["group-0"] != 1 {
		t.Errorf("judged %v, want group-0 once", judged)
	}
	if _, err := sink.ReadLogEach(dir, func(c *sink.Commit) {
		for _, s := range c.Samples {
			want := ""
			if c.Groups[s.Group].ID == "group-0" && !s.Failed() {
				want = "filtered"
			}
			if s.Filtered != want {
				t.Errorf("%s, attempt %d: filtered for %q, want %q", s.Key, s.Attempt, s.Filtered, want)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	wholeVerify(t, dir)
}

// TestJudgeLowered tests that a sample with group size 1 is not judged alone if other samples of its
// group wait or are committed. Waiting samples keep the largest size.
func TestJudgeLowered(t *testing.T) {
	t.Parallel()
	for _, committed := range []bool{false, true} {
		t.Run(fmt.Sprintf("committed=%t", committed), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			all := group(sinktest.NewBuilder(3), 0, 3)
			all[0].GroupSize = 1
			var judged []int // sizes of the judged groups
			cfg := sink.Config{CommitGroups: !committed, Judge: func(g *sink.GroupFacts) { judged = append(judged, len(g.Samples)) }}
			write := func(list ...*tokenize.Sample) {
				t.Helper()
				sinktest.Write(t, dir, cfg, list)
			}
			with, want := 0, []int{3}
			if committed {
				with, want = 2, nil // the rest of a group is not judged
			}
			write(all[1])
			cfg.CommitGroups = true
			write(all[0])
			log, err := sink.ReadLog(dir)
			if err != nil || len(log.Commits) != with || len(judged) > 0 {
				t.Errorf("with two of three: %d commits, judged %v, want %d and none; %v", len(log.Commits), judged, with, err)
			}
			write(all[2])
			if !slices.Equal(judged, want) {
				t.Errorf("judged %v, want %v", judged, want)
			}
			if r := wholeVerify(t, dir); r.Samples != 3 || r.WAL != (sink.WALReport{}) {
				t.Errorf("%d samples, %+v, want 3 and nothing that waits", r.Samples, r.WAL)
			}
		})
	}
}
