package sink_test

import (
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/store"
)

// TestGarbage tests which objects Garbage returns: none while the log is open or while it has been sealed
// for less than a day, and afterwards only old ones that no reader needs. The clock of the store is days
// behind the clock of this machine.
func TestGarbage(t *testing.T) {
	t.Parallel()
	b, dir := newBucket(t), t.TempDir()
	ahead := func(d time.Duration) {
		b.server.Ahead = d
		b.proxy.Plan(nil) // orders the change before the next request
	}
	garbage := func(age time.Duration) (names []string) {
		t.Helper()
		now, err := b.Now()
		must(t, err)
		list, err := sink.Garbage(b, now.Add(-age))
		must(t, err)
		for _, i := range list {
			names = append(names, i.Name)
		}
		return names
	}
	none := func(when string, age time.Duration) {
		t.Helper()
		if got := garbage(age); len(got) > 0 {
			t.Errorf("%s: %q", when, got)
		}
	}
	const day = 24 * time.Hour
	ahead(-9 * day)
	cfg := b.next(t, sink.Config{MergeAt: 3})
	cfg.Epoch = 0
	smallCommits(t, dir, cfg, 11, 5)
	old := b.readLog(t)
	want := linesOf(t, old)
	name := func(hash string) string { // of a shard of the first epoch that no entry names
		path := old.Commits[0].Shards[0].Path
		return path[:strings.LastIndexByte(path, '-')] + "-" + hash + ".parquet"
	}
	d := open(t, t.TempDir(), b.next(t, cfg))
	if n, err := d.MergeAll(t.Context()); err != nil || n < 2 {
		t.Fatalf("%d merges, %v", n, err)
	}
	must(t, b.Put("data/notes.txt", nil))
	must(t, b.Put(name("00000001"), nil)) // after the sweep of its successor
	ahead(-8 * day)
	none("before the end", -day)

	wait := start(t.Context(), t, d)
	must(t, errors.Join(d.Close(t.Context()), wait(), d.Seal()))
	none("at the end", day)
	ahead(-7*day - time.Hour)
	none("23 hours later", day)
	ahead(-7*day + time.Hour)
	must(t, b.Put(name("00000002"), nil)) // by a process that was suspended
	got := garbage(day)
	replaced := map[string]bool{} // without the young shard
	for _, key := range b.server.Keys("bucket") {
		if path := strings.TrimPrefix(key, "run/"); strings.Contains(path, "/part-") && path != name("00000002") {
			replaced[path] = true
		}
	}
	live := 0
	for _, c := range b.readLog(t).Commits {
		for _, s := range c.Shards {
			live++
			delete(replaced, s.Path)
		}
	}
	shards := slices.DeleteFunc(slices.Clone(got), func(name string) bool { return strings.HasPrefix(name, "_checkpoints/") })
	if want := slices.Sorted(maps.Keys(replaced)); !slices.Equal(shards, want) || len(want) < 10 || live == 0 {
		t.Errorf("the garbage has the shards\n%q, want\n%q", shards, want)
	}
	if n := len(got) - len(shards); n == 0 {
		t.Error("no old checkpoint is garbage")
	}

	for _, name := range got {
		must(t, b.Delete(name))
	}
	none("after the deletion", day)
	for _, log := range []*sink.Log{old, b.readLog(t)} {
		if got := linesOf(t, log); !slices.Equal(got, want) {
			t.Errorf("%d lines, want %d", len(got), len(want))
		}
	}
	if r := b.verify(t); !slices.Equal(r.Orphans, []string{"data/notes.txt", name("00000002")}) {
		t.Errorf("orphans: %q", r.Orphans)
	}
}

// TestGarbageWithoutTime tests that an object counts as new if its store reports no time.
func TestGarbageWithoutTime(t *testing.T) {
	t.Parallel()
	objects := timeless{store.Folder(sink.OS(), t.TempDir())}
	d := open(t, t.TempDir(), sink.Config{Store: objects, Epoch: 1, Worker: "worker"})
	wait := start(t.Context(), t, d)
	appendAll(t, d, samples(1)...)
	must(t, errors.Join(d.Close(t.Context()), wait(), d.Seal()))
	log, err := sink.ReadLogIn(objects, "", nil)
	must(t, err)
	shard := log.Commits[0].Shards[0].Path
	must(t, objects.Put(shard[:strings.LastIndexByte(shard, '-')]+"-00000000.parquet", nil))
	if list, err := sink.Garbage(objects, time.Now().Add(time.Hour)); err != nil || len(list) > 0 {
		t.Errorf("Garbage() = %v, %v", list, err)
	}
	if list, err := sink.Garbage(objects.Store, time.Now().Add(time.Hour)); err != nil || len(list) != 1 {
		t.Errorf("with times, Garbage() = %v, %v", list, err)
	}
}

// A timeless is a store whose lists have no times.
type timeless struct{ store.Store }

func (s timeless) List(prefix, after string) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		for info, err := range s.Store.List(prefix, after) {
			info.Time = time.Time{}
			if !yield(info, err) {
				return
			}
		}
	}
}
