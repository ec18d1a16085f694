package sink_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/tokenize"
)

// group returns the samples of a group: some with one row, some with two, some failed.
func group(b *sinktest.Builder, id, size int) (all []*tokenize.Sample) {
	for i := range size {
		var s *tokenize.Sample
		switch (id + i) % 5 {
		case 3:
			s = b.Failure(7)
		case 4:
			s = b.Sample(b.Row(40, 300), b.Row(90, 200, 30, 100))
		default:
			s = b.Sample(b.Row(100, 900))
		}
		all = append(all, grouping(s, id, size, i))
		s.GroupID = fmt.Sprintf("group-%d", id)
	}
	return all
}

// nextAttempt makes s the attempt after a failed one.
func nextAttempt(s, failed *tokenize.Sample) *tokenize.Sample {
	s.GroupID, s.GroupSize, s.Index, s.Key = failed.GroupID, failed.GroupSize, failed.Index, failed.Key
	s.Attempt = failed.Attempt + 1
	s.RolloutID = fmt.Sprintf("%s/%d", s.Key, s.Attempt)
	return s
}

// inPieces counts the pieces of each group in the order of the log, and lists indexes out of order.
func inPieces(t *testing.T, dir string) (pieces map[string]int, disorder []string) {
	t.Helper()
	log := readLog(t, dir)
	pieces = map[string]int{}
	for _, c := range log.Commits {
		var last string
		index := int32(-1)
		for _, s := range c.Samples {
			if id := c.Groups[s.Group].ID; id != last {
				pieces[id]++
				last, index = id, -1
			}
			if s.Index < index {
				disorder = append(disorder, s.Key)
			}
			index = s.Index
		}
	}
	return pieces, disorder
}

// inOnePiece checks that each group is in one piece, and that no sample is out of order.
func inOnePiece(t *testing.T, dir string, groups ...string) {
	t.Helper()
	pieces, disorder := inPieces(t, dir)
	for _, id := range groups {
		if pieces[id] != 1 || len(disorder) > 0 {
			t.Errorf("%s is in %d pieces, out of order %q", id, pieces[id], disorder)
		}
	}
}

// TestGroupsLieInOnePiece tests that the samples of a group are adjacent, by index, in one shard,
// whatever the order in which they finish, in memory or reread.
func TestGroupsLieInOnePiece(t *testing.T) {
	t.Parallel()
	for _, format := range []sink.Format{sink.Parquet, sink.Arrow} {
		for _, tt := range []struct {
			groups int
			sizes  []int
			cfg    sink.Config
		}{
			{60, []int{6, 1, 9}, sink.Config{}},
			{60, []int{6, 1, 9}, sink.Config{MaxBytesInFlight: 40_000}},
			{60, []int{6, 1, 9}, sink.Config{MaxBytesInFlight: 100_000, MaxShardBytes: 1_500_000}},
			{1, []int{1000}, sink.Config{MaxBytesInFlight: 100_000}}, // within the memory budget
		} {
			cfg := tt.cfg
			cfg.Format = format
			t.Run(fmt.Sprintf("%s/groups=%d/in-flight=%d", format, tt.groups, cfg.MaxBytesInFlight), func(t *testing.T) {
				t.Parallel()
				build := func() (all []*tokenize.Sample) {
					b := sinktest.NewBuilder(12)
					for id := range tt.groups {
						all = append(all, group(b, id, tt.sizes[id%len(tt.sizes)])...)
					}
					return all
				}
				all, dir := build(), t.TempDir()
				rng := rand.New(rand.NewPCG(5, 0))
				for i := 0; i < len(all); i += 40 { // samples finish out of order within two commits
					part := all[i:min(i+40, len(all))]
					rng.Shuffle(len(part), func(i, k int) { part[i], part[k] = part[k], part[i] })
				}
				sinktest.Write(t, dir, cfg, all)
				compareDataset(t, dir, build())
				pieces, disorder := inPieces(t, dir)
				for id, n := range pieces {
					if n != 1 {
						t.Errorf("%s is in %d pieces", id, n)
					}
				}
				if len(pieces) != tt.groups || len(disorder) > 0 {
					t.Errorf("%d groups, out of order %q", len(pieces), disorder)
				}
				if r := wholeVerify(t, dir); r.WAL.Segments > 0 {
					t.Errorf("%d segments are left", r.WAL.Segments)
				}
			})
		}
	}
}

// TestHeldLetsAppendOn tests that held samples never block Append, not even for a sample above the budget.
func TestHeldLetsAppendOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := open(t, dir, sink.Config{MaxBytesInFlight: 45_000}) // four samples
		wait := start(t.Context(), t, d)
		b := sinktest.NewBuilder(3)
		all := group(b, 0, 40)[:30]
		large := b.Sample(b.Row(100, 9000))
		large.GroupID, large.GroupSize, large.Index = "large", 2, 0
		began, told := time.Now(), 0
		for _, s := range append(all, large) {
			synctest.Wait() // the writer is idle
			must(t, d.Append(t.Context(), s, func(err error) {
				if told++; err != nil {
					t.Error(err)
				}
			}))
			if n := d.Stats().BytesInFlight; n > 45_000 && s != large {
				t.Errorf("%d bytes in flight", n)
			}
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("31 samples took %v", took)
		}
		synctest.Wait()
		if s := d.Stats(); s.Commits != 0 || s.Pending != 31 || told != 0 {
			t.Errorf("%+v, %d reported, want 31 samples held", s, told)
		}
		if err := errors.Join(d.Close(t.Context()), wait()); err != nil || told != 31 {
			t.Errorf("%v, %d reported", err, told)
		}
	})
	inOnePiece(t, dir, "group-0", "large")
}

// TestHeldIsCommittedByAge tests that a sample is committed MaxShardAge after its arrival, with or
// without its siblings, and stays held at an earlier commit.
func TestHeldIsCommittedByAge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var first sink.Commit
		d, _ := create(t, sink.Config{MaxShardAge: time.Minute, Events: sink.Events{Committed: func(c sink.Commit) {
			mu.Lock()
			defer mu.Unlock()
			if first.Seq == 0 {
				first = c
			}
		}}})
		wait := start(t.Context(), t, d)
		time.Sleep(time.Hour) // an idle writer commits nothing
		epoch := time.Now()
		b := sinktest.NewBuilder(3)
		took := map[string]time.Duration{}
		put := func(s *tokenize.Sample) {
			t.Helper()
			began, key := time.Now(), s.GroupID+fmt.Sprint(s.Index)
			must(t, d.Append(t.Context(), s, func(error) {
				mu.Lock()
				defer mu.Unlock()
				took[key] = time.Since(began).Round(time.Second)
			}))
		}
		one, cut, whole := group(b, 1, 1), group(b, 2, 3), group(b, 0, 2)
		put(one[0])
		time.Sleep(40 * time.Second)
		put(cut[0])
		time.Sleep(10 * time.Second) // 50 s
		put(whole[0])
		put(cut[1])
		time.Sleep(20 * time.Second) // 70 s: one is committed
		put(whole[1])
		time.Sleep(time.Hour)
		put(cut[2])
		time.Sleep(time.Hour)
		mu.Lock()
		want := map[string]time.Duration{
			"group-10": 60 * time.Second,
			"group-20": 60 * time.Second, "group-21": 50 * time.Second, "group-22": 60 * time.Second,
			"group-00": 50 * time.Second, "group-01": 30 * time.Second, // with the samples of 40 s
		}
		if fmt.Sprint(took) != fmt.Sprint(want) {
			t.Errorf("committed after %v, want %v", took, want)
		}
		if first.Seq != 1 || len(first.Samples) != 1 || !first.CreatedAt.Equal(epoch.Add(time.Minute)) {
			t.Errorf("the first commit is %+v", first)
		}
		mu.Unlock()
		if err := errors.Join(d.Close(t.Context()), wait()); err != nil || d.Stats().Commits != 3 {
			t.Errorf("%v, %d commits, want 3", err, d.Stats().Commits)
		}
	})
}

// TestHeldOverCommits tests that an incomplete group is held for two commits, to bound the log.
func TestHeldOverCommits(t *testing.T) {
	t.Parallel()
	d, dir := create(t, sink.Config{MaxShardBytes: 1}) // every written sample is a commit
	wait := start(t.Context(), t, d)
	b := sinktest.NewBuilder(3)
	held := make(chan error, 1)
	must(t, d.Append(t.Context(), group(b, 0, 2)[0], func(err error) { held <- err }))
	for i := range 5 {
		done := make(chan error, 1)
		must(t, d.Append(t.Context(), group(b, 10+i, 1)[0], func(err error) { done <- err }))
		must(t, <-done)
		if n := len(segments(t, dir)); n > 4 {
			t.Errorf("%d segments", n)
		}
	}
	must(t, <-held)
	log, err := sink.ReadLog(dir)
	if err != nil || len(log.Commits) < 3 || log.Commits[2].Samples[0].Key != fmt.Sprintf("%032x-0", 0) {
		t.Errorf("%+v, %v", log.Commits, err)
	}
	must(t, errors.Join(d.Close(t.Context()), wait()))
}

// TestHeldRetry tests that a held failure and its later success stay in order and are one outcome.
func TestHeldRetry(t *testing.T) {
	t.Parallel()
	d, dir := create(t, sink.Config{})
	wait := start(t.Context(), t, d)
	b := sinktest.NewBuilder(3)
	all := group(b, 0, 4) // the last one failed
	again := nextAttempt(b.Sample(b.Row(100, 900)), all[3])
	appendAll(t, d, all[3], all[1], again, all[2], all[0])
	must(t, errors.Join(d.Close(t.Context()), wait()))
	if r := wholeVerify(t, dir); r.Samples != 4 || r.Failed != 0 {
		t.Errorf("%d samples, %d of them failed, want 4 and 0", r.Samples, r.Failed)
	}
	inOnePiece(t, dir, "group-0")
}

// TestHeldIsTold tests that when Run's context ends, done is called once for all samples, held or in an
// open shard, and that the next Create commits them with whole groups in one piece.
func TestHeldIsTold(t *testing.T) {
	t.Parallel()
	for _, inFlight := range []int64{1, 1 << 20} { // released, and in memory
		d, dir := create(t, sink.Config{MaxBytesInFlight: inFlight})
		ctx, cancel := context.WithCancelCause(t.Context())
		wait := start(ctx, t, d)
		b := sinktest.NewBuilder(3)
		first, second := group(b, 0, 4), group(b, 1, 4)
		told := make(chan error, 8)
		for _, s := range append(group(b, 2, 1), first[0], second[3], first[2], first[1], second[0], second[1]) {
			must(t, d.Append(t.Context(), s, func(err error) { told <- err }))
		}
		gone := errors.New("gone")
		cancel(gone)
		for _, err := range []error{wait(), d.Close(t.Context())} {
			if !errors.Is(err, gone) {
				t.Errorf("Run() or Close() = %v, want the cause", err)
			}
		}
		if err := d.Append(t.Context(), first[3], nil); !errors.Is(err, sink.ErrClosed) || !errors.Is(err, gone) {
			t.Errorf("Append() = %v, want ErrClosed and the cause", err)
		}
		if len(told) != 7 {
			t.Errorf("%d of 7 were reported", len(told))
		}
		for range len(told) {
			if err := <-told; !errors.Is(err, gone) {
				t.Errorf("done(%v)", err)
			}
		}
		if s := d.Stats(); s.Pending != 0 || s.BytesInFlight != 0 || s.Commits != 0 {
			t.Errorf("%+v", s)
		}
		if r := wholeVerify(t, dir); len(r.Orphans) > 0 {
			t.Errorf("orphans %q", r.Orphans)
		}
		open(t, dir, sink.Config{})
		inOnePiece(t, dir, "group-0", "group-1")
	}
}

// TestHeldCannotBeReadAgain tests that a failed reread ends the run, and that the group is not lost.
func TestHeldCannotBeReadAgain(t *testing.T) {
	t.Parallel()
	for _, flip := range []bool{false, true} { // a changed bit, or an error of the disk
		disk := hookFS{sink.OS(), func(op string, paths ...string) error {
			if !flip && op == "read" && filepath.Ext(paths[0]) == ".wal" {
				return errors.New("bad sector")
			}
			return nil
		}}
		d, dir := create(t, sink.Config{MaxBytesInFlight: 1, FS: disk})
		flipBit := func() {
			if flip {
				name := segments(t, dir)[0]
				body := readFile(t, name)
				body[3000] ^= 1 // in the first sample
				must(t, os.WriteFile(name, body, 0o666))
			}
		}
		wait := start(t.Context(), t, d)
		told := make(chan error, 4)
		var refused error
		for i, s := range group(sinktest.NewBuilder(3), 0, 4) {
			if i == 3 {
				flipBit()
			}
			refused = d.Append(t.Context(), s, func(err error) { told <- err })
		}
		err := wait()
		var shard *sink.ShardError
		if !errors.As(err, &shard) || shard.Op != "read" || !strings.HasSuffix(shard.Path, ".wal") {
			t.Errorf("Run() = %v, want that the segment cannot be read", err)
		}
		if refused != nil || len(told) != 4 {
			t.Errorf("Append() = %v, %d of 4 reported", refused, len(told))
		}
		for range len(told) {
			if err := <-told; !errors.As(err, &shard) {
				t.Errorf("done(%v)", err)
			}
		}
		if n := d.Stats().BytesInFlight; n != 0 {
			t.Errorf("%d bytes in flight", n)
		}
		flipBit() // back
		open(t, dir, sink.Config{})
		compareDataset(t, dir, group(sinktest.NewBuilder(3), 0, 4))
		inOnePiece(t, dir, "group-0")
	}
}
