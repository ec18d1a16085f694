package sink_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/tokenize"
)

// TestGroupsWaitAcrossProcesses tests that samples of incomplete groups survive closes and kills in the
// write-ahead log. Later processes find them in the ledger. None is
// accepted twice, and each group is judged as a whole and is in one commit.
func TestGroupsWaitAcrossProcesses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := sinktest.NewBuilder(3)
	parts := make([][]*tokenize.Sample, 4) // part i has sample i of each group
	for id := range 5 {
		for i, s := range group(b, id, 4) { // some fail
			parts[i] = append(parts[i], s)
		}
	}
	cfg := sink.Config{CommitGroups: true, Judge: func(g *sink.GroupFacts) {
		if len(g.Samples) != int(g.Size) {
			t.Errorf("%s is judged by %d samples", g.ID, len(g.Samples))
		}
		judgeEven(g)
	}}
	fails := map[string]bool{}
	for _, part := range parts {
		for _, s := range part {
			fails[s.Key] = len(s.Rows) == 0
		}
	}
	var before []string
	for life, part := range parts {
		if life == 0 { // samples of whole groups between the waiting ones
			part = append(part, group(b, 9, 1)...)
		}
		var keys []string
		for _, s := range part {
			keys = append(keys, s.Key)
		}
		synctest.Test(t, func(t *testing.T) {
			d, _, end := grouped(t, dir, cfg)
			if r, want := d.Recovered(), int64(5*life); r.Waiting != want || r.Replayed != 0 || d.Stats().Pending != want {
				t.Errorf("life %d: recovered %+v, %d pending, want %d that wait", life, r, d.Stats().Pending, want)
			}
			ctx := t.Context()
			for _, key := range before {
				s := b.Sample(b.Row(1, 2))
				s.Key = key
				if err := d.Append(ctx, s, func(error) {}); !errors.Is(err, sink.ErrCommitted) {
					t.Errorf("life %d: Append of %s again: %v, want ErrCommitted", life, key, err)
				}
			}
			told := make(chan error, len(part))
			for _, s := range part {
				must(t, d.Append(ctx, s, func(err error) { told <- err }))
			}
			synctest.Wait()
			if life != 1 { // that process leaves the group incomplete
				end()
				waits := 0
				for range len(part) {
					switch err := <-told; {
					case errors.Is(err, sink.ErrWaiting):
						waits++
					case err != nil:
						t.Errorf("life %d: %v", life, err)
					}
				}
				if want := []int{5, 5, 5, 0}[life]; waits != want || d.Stats().Pending != int64(want*(life+1)) {
					t.Errorf("life %d: %d of its samples wait, %d pending, want %d and %d", life, waits, d.Stats().Pending, want, want*(life+1))
				}
			}
		})
		ledger, err := sink.ReadLedger(dir)
		must(t, err)
		for _, key := range keys[:5] {
			_, class, ok := ledger.Find(key)
			if waits := ledger.Waits(key); !ok || (class != "") != fails[key] || waits != (life < 3 && !fails[key]) {
				t.Errorf("life %d: the ledger has %s: %v, class %q, waits %v", life, key, ok, class, waits)
			}
			if !fails[key] {
				before = append(before, key)
			}
		}
		want := len(before)
		if life == 3 {
			want = 0
		}
		if ledger.Waiting() != want || ledger.Len() != 1+5*(life+1) {
			t.Errorf("life %d: %d samples, %d of them wait, want %d and %d", life, ledger.Len(), ledger.Waiting(), 1+5*(life+1), want)
		}
		wholeVerify(t, dir)
	}
	wholeGroups(t, dir, 6)
	if list := segments(t, dir); len(list) > 0 {
		t.Errorf("segments are left: %q", list)
	}
}

// TestWaitingGroupGrows tests that a waiting group whose size is raised becomes whole at the new size.
func TestWaitingGroupGrows(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := sinktest.NewBuilder(3)
	all := group(b, 1, 5)
	judged := 0
	cfg := sink.Config{CommitGroups: true, Judge: func(g *sink.GroupFacts) {
		judged++
		if g.Size != 5 || len(g.Samples) != 5 {
			t.Errorf("judged by %d samples of %d, want 5", len(g.Samples), g.Size)
		}
		for i := range g.Samples {
			keep := true
			g.Samples[i].Keep = &keep
		}
	}}
	for _, s := range all[:2] {
		s.GroupSize = 3
	}
	for _, part := range [][]*tokenize.Sample{all[:2], all[2:]} {
		synctest.Test(t, func(t *testing.T) {
			d, _, end := grouped(t, dir, cfg)
			appendAll(t, d, part...)
			synctest.Wait()
			end()
		})
	}
	wholeGroups(t, dir, 1)
	if judged != 1 {
		t.Errorf("judged %d times, want once", judged)
	}
}

// TestLargeGroupIsOneCommit tests that a group larger than a shard should be is still one commit.
func TestLargeGroupIsOneCommit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := sinktest.NewBuilder(3)
	cfg := sink.Config{CommitGroups: true, MaxShardBytes: 3000, Judge: judgeEven}
	var all []*tokenize.Sample
	for id := range 4 {
		all = append(all, group(b, id, 16)...)
	}
	sinktest.Write(t, dir, cfg, all)
	wholeGroups(t, dir, 4)
}
