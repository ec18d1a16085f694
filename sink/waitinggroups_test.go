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
// accepted twice, and each group is judged as a whole and is in one commit. A late sample of a whole group
// is committed at once.
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
	var before []string
	for life, part := range parts {
		if life == 0 { // samples of whole groups between the waiting ones
			part = append(part, group(b, 9, 1)...)
		}
		var keys []string
		for _, s := range part {
			keys, fails[s.Key] = append(keys, s.Key), len(s.Rows) == 0
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
			if n := d.Stats().Pending; life == 3 && n > 0 {
				t.Errorf("%d samples of whole groups are pending before Close", n)
			}
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
		ledger, err := sink.ReadLedger(nil, dir)
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
	synctest.Test(t, func(t *testing.T) {
		d, commits, end := grouped(t, dir, cfg)
		appendAll(t, d, nextAttempt(b.Sample(b.Row(10, 20)), parts[3][0])) // which failed
		synctest.Wait()
		if n := len(commits()); n != 1 {
			t.Errorf("a sample of a whole group: %d commits before Close, want 1", n)
		}
		end()
	})
	if list := segments(t, dir); len(list) > 0 {
		t.Errorf("segments are left: %q", list)
	}
}
