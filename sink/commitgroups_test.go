package sink_test

import (
	"context"
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

// A committed is what one commit was told of, and when.
type committed struct {
	groups []string
	at     time.Time
}

// grouped opens a dataset that commits groups as they become whole, and returns what it has
// committed so far.
func grouped(t *testing.T, dir string, cfg sink.Config) (d *sink.Dataset, commits func() []committed, wait func() error) {
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
	d, err := sink.Create(dir, cfg)
	if err != nil {
		t.Fatal(err)
	}
	commits = func() []committed {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(list)
	}
	return d, commits, start(t.Context(), t, d)
}

func appendAll(t *testing.T, d *sink.Dataset, list ...*tokenize.Sample) {
	t.Helper()
	for _, s := range list {
		if err := d.Append(t.Context(), s, func(error) {}); err != nil {
			t.Fatal(err)
		}
	}
}

// A group is committed within 20 ms of its last sample, while others are open; it waits for
// its last sample however long that takes, and Close commits what is there of it.
func TestCommitGroups(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d, commits, wait := grouped(t, dir, sink.Config{MaxShardAge: time.Minute})
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
		if err := d.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if err := wait(); err != nil {
			t.Error(err)
		}
		if got := commits(); len(got) != 5 || !slices.Equal(got[4].groups, []string{"group-4"}) {
			t.Errorf("Close committed %v", got)
		}
	})
	report, err := sink.Verify(t.Context(), dir, sink.VerifyOptions{})
	if err != nil || report.ProblemCount > 0 || report.WAL.Segments > 0 {
		t.Errorf("Verify: %+v, %v", report, err)
	}
}

// What shares a sync of the write-ahead log shares a commit.
func TestCommitGroupsShare(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d, commits, wait := grouped(t, dir, sink.Config{})
		b := sinktest.NewBuilder(3)
		var feed sync.WaitGroup
		appendAll(t, d, group(b, 9, 1)...) // the next sync is 20 ms later
		for id := range 5 {
			for _, s := range group(b, id, 3) {
				feed.Go(func() { appendAll(t, d, s) })
			}
		}
		feed.Wait()
		synctest.Wait()
		if got := commits(); len(got) != 2 || len(got[1].groups) != 5 {
			t.Errorf("committed %v, want five groups in the second commit", got)
		}
		if err := d.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if err := wait(); err != nil {
			t.Error(err)
		}
	})
}

// A group of which a part was committed before is whole with the rest of it, and a sample
// that comes for a whole group is committed at once.
func TestCommitGroupsGoOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := sinktest.NewBuilder(3)
	one, two := group(b, 1, 5), group(b, 5, 4) // index 2 of the first and 3 of the second fail
	again := b.Sample(b.Row(10, 20))
	failed := one[2]
	again.GroupID, again.GroupSize, again.Index, again.Key, again.Attempt = failed.GroupID, failed.GroupSize, failed.Index, failed.Key, 2
	for i, part := range [][]*tokenize.Sample{slices.Concat(one[:3], two[1:]), {one[3]}, {one[4]}, {two[0]}, {again}} {
		synctest.Test(t, func(t *testing.T) {
			d, commits, wait := grouped(t, dir, sink.Config{})
			appendAll(t, d, part...)
			synctest.Wait()
			if n, want := len(commits()), []int{0, 0, 1, 1, 1}[i]; n != want {
				t.Errorf("part %d: %d commits before Close, want %d", i, n, want)
			}
			if err := d.Close(context.Background()); err != nil {
				t.Error(err)
			}
			if err := wait(); err != nil {
				t.Error(err)
			}
		})
	}
	log, err := sink.ReadLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	var groups sink.GroupLog
	var whole []string
	for i := range log.Commits {
		for _, g := range groups.Add(&log.Commits[i]) {
			whole = append(whole, fmt.Sprintf("%s in %d: %d+%d", g.ID, g.Seq, g.Done, g.Failed))
		}
	}
	if want := []string{"group-1 in 3: 4+1", "group-5 in 4: 3+1"}; !slices.Equal(whole, want) {
		t.Errorf("whole: %q, want %q", whole, want)
	}
}
