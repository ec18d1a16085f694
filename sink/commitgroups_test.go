package sink_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/tokenize"
)

// committed records one commit and its time.
type committed struct {
	groups []string
	at     time.Time
}

// grouped runs a dataset with CommitGroups. commits returns the commits so far, end closes the dataset.
func grouped(t *testing.T, dir string, cfg sink.Config) (d *sink.Dataset, commits func() []committed, end func()) {
	t.Helper()
	var mu sync.Mutex
	var list []committed
	cfg.CommitGroups = true
	cfg.Events.Committed = func(c sink.Commit) {
		one := committed{at: time.Now()}
		for _, g := range c.Groups {
			one.groups = append(one.groups, g.ID)
		}
		mu.Lock()
		defer mu.Unlock()
		list = append(list, one)
	}
	d = open(t, dir, cfg)
	commits = func() []committed {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(list)
	}
	wait := start(t.Context(), t, d)
	return d, commits, func() {
		t.Helper()
		must(t, errors.Join(d.Close(context.Background()), wait()))
	}
}

// grouping puts a sample into a group with an id of realistic length.
func grouping(s *tokenize.Sample, id, size, index int) *tokenize.Sample {
	s.GroupID, s.GroupSize, s.Index = fmt.Sprintf("%032x", id), int32(size), int32(index)
	s.Key = fmt.Sprintf("%s-%d", s.GroupID, index)
	s.RolloutID = s.Key + "/1"
	return s
}

func appendAll(t *testing.T, d *sink.Dataset, list ...*tokenize.Sample) {
	t.Helper()
	for _, s := range list {
		must(t, d.Append(t.Context(), s, func(error) {}))
	}
}

// commitAll appends samples of whole groups and waits until they are committed.
func commitAll(t *testing.T, d *sink.Dataset, list ...*tokenize.Sample) {
	t.Helper()
	done := make(chan error, len(list))
	for _, s := range list {
		must(t, d.Append(context.Background(), s, func(err error) { done <- err })) // t can be outside of the bubble
	}
	for range list {
		must(t, <-done)
	}
}

// TestCommitGroups tests that a group is committed within 20 ms of its last sample while others are
// open. It waits for its last sample without limit, and Close leaves it in the write-ahead log.
func TestCommitGroups(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d, commits, end := grouped(t, dir, sink.Config{MaxShardAge: time.Minute})
		b := sinktest.NewBuilder(3)
		groups := [][]*tokenize.Sample{group(b, 0, 4), group(b, 1, 4), group(b, 2, 4), group(b, 3, 1), group(b, 4, 4)}
		for _, g := range groups {
			appendAll(t, d, g[:len(g)-1]...)
		}
		time.Sleep(3 * time.Hour)
		if got := commits(); len(got) != 0 {
			t.Fatalf("committed before any group was whole: %v", got)
		}
		for i, at := range []int{2, 0, 3, 1} {
			last := groups[at][len(groups[at])-1]
			began := time.Now()
			appendAll(t, d, last)
			synctest.Wait()
			got := commits()
			if len(got) != i+1 || !slices.Equal(got[i].groups, []string{last.GroupID}) {
				t.Fatalf("after the last sample of %s: %v", last.GroupID, got)
			}
			if late := got[i].at.Sub(began); late > 20*time.Millisecond {
				t.Errorf("%s was committed %v after its last sample came", last.GroupID, late)
			}
			time.Sleep(time.Second)
		}
		end()
		if got := commits(); len(got) != 4 {
			t.Errorf("Close committed %v", got)
		}
	})
	if r := wholeVerify(t, dir); r.WAL.Pending != 3 {
		t.Errorf("%d samples wait in the write-ahead log, want 3", r.WAL.Pending)
	}
}

// TestGateCommitGroupSyncs counts syncs. Groups that share a sync of the write-ahead log share a commit,
// too. A commit of a group takes four, for its shard, data/, the
// entry and _commits/, or six with failures. Each lone sample takes one of the write-ahead log. So 32
// samples in 4 groups cost 48 one by one, and 5 all at once. The dataset card takes one in 30 seconds,
// a segment three per 4 MiB.
func TestGateCommitGroupSyncs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		disk := faulty(sink.OS(), -1, nil)
		d, commits, end := grouped(t, dir, sink.Config{FS: disk, MergeAt: 1000})
		syncs := func(what string, want int, feed func()) {
			t.Helper()
			before := len(disk.Ops())
			feed()
			synctest.Wait()
			n := 0
			for _, op := range disk.Ops()[before:] {
				if op == "sync" || op == "syncdir" {
					n++
				}
			}
			if n != want {
				t.Errorf("%s: %d syncs, want %d", what, n, want)
			}
		}
		b := sinktest.NewBuilder(3)
		iteration := func(first int) (all []*tokenize.Sample) {
			for id := range 4 {
				for i := range 8 {
					all = append(all, grouping(b.Sample(b.Row(200, 800)), first+id, 8, i))
				}
			}
			return all
		}
		alone := func(all []*tokenize.Sample) func() {
			return func() {
				for _, s := range all {
					time.Sleep(100 * time.Millisecond)
					appendAll(t, d, s)
				}
			}
		}
		appendAll(t, d, group(b, 9, 1)...) // for the segment's name
		synctest.Wait()
		syncs("samples that come alone", 32+4*4, alone(iteration(100)))
		syncs("a group with failures", 5+6, alone(group(b, 0, 5)))
		syncs("all at once", 1+4, func() {
			var feed sync.WaitGroup
			for _, s := range iteration(200) {
				feed.Go(func() { appendAll(t, d, s) })
			}
			time.Sleep(time.Second)
			feed.Wait()
		})
		if n := len(commits()); n != 1+4+1+1 {
			t.Errorf("%d commits, want 7", n)
		}
		end()
	})
}

// TestCommitGroupsKeepFewSegments tests that during many small commits only held samples keep segments.
// The number of segments depends on bytes, not on commits.
func TestCommitGroupsKeepFewSegments(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d, commits, end := grouped(t, dir, sink.Config{Format: sink.Arrow, MergeAt: 1000})
		b := sinktest.NewBuilder(3)
		slow := group(b, 0, 3) // it keeps the first segment
		appendAll(t, d, slow[0])
		var bytes int64
		most := 0
		for id := range 200 {
			s := grouping(b.Sample(b.Row(4_000, 12_000)), 1000+id, 1, 0)
			before := d.Stats().WALBytes
			appendAll(t, d, s)
			bytes += max(0, d.Stats().WALBytes-before)
			synctest.Wait()
			most = max(most, len(segments(t, dir)))
			time.Sleep(25 * time.Millisecond)
		}
		if n := len(commits()); n != 200 {
			t.Errorf("%d commits, want 200", n)
		}
		if most > 3 { // of the slow group, the ended one, the open one
			t.Errorf("%d segments at once, want at most 3", most)
		}
		if now := d.Stats().WALBytes; bytes < 12<<20 || now > 10<<20 {
			t.Errorf("%d bytes were written, %d are left, want at most two segments of 4 MiB", bytes, now)
		}
		appendAll(t, d, slow[1:]...)
		end()
	})
	if list := segments(t, dir); len(list) != 0 {
		t.Errorf("segments are left: %q", list)
	}
}

// wholeGroups checks that the log has n groups, each in one commit and judged.
func wholeGroups(t *testing.T, dir string, n int) {
	t.Helper()
	commits := map[string][]int64{}
	log := readLog(t, dir)
	for _, c := range log.Commits {
		for _, g := range c.Groups {
			if !slices.Contains(commits[g.ID], c.Seq) { // it can appear with two sizes
				commits[g.ID] = append(commits[g.ID], c.Seq)
			}
		}
	}
	for id, seqs := range commits {
		if len(seqs) > 1 {
			t.Errorf("%s is in commits %d, want one", id, seqs)
		}
	}
	if len(commits) != n {
		t.Errorf("%d groups in the log, want %d", len(commits), n)
	}
	for s := range log.Shards(sink.KindData) {
		for r := range each(t, log.Rows(s)) {
			if r.Keep == nil || *r.Keep != (reasonOf(r.GroupID) == "") {
				t.Errorf("%s of %s: keep is %v, but the group is filtered for %q", r.SampleKey, r.GroupID, r.Keep, reasonOf(r.GroupID))
			}
		}
	}
}

// TestEmptySegmentIsSynced tests that the last mark of an ended segment is synced before the next
// segment is created, even if commits hold all its samples. Otherwise a power failure could bring the
// segment back with a torn end, which is damage.
func TestEmptySegmentIsSynced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		disk := faulty(sink.OS(), -1, nil)
		d, _, end := grouped(t, dir, sink.Config{FS: disk})
		b := sinktest.NewBuilder(3)
		appendAll(t, d, group(b, 0, 1)...)
		synctest.Wait()
		before := len(disk.Ops())
		d.EndSegment()
		synctest.Wait()
		appendAll(t, d, group(b, 1, 1)...)
		ops := disk.Ops()[before:]
		if made := slices.Index(ops, "create"); made < 0 || !slices.Contains(ops[:made], "sync") || ops[0] != "remove" {
			t.Errorf("operations: %q, want a sync before a file is made", ops)
		}
		end()
	})
}
