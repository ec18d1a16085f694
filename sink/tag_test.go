package sink_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/sink/store"
)

// TestForeignSpool tests that Create refuses a folder with the write-ahead log of another dataset,
// and leaves it as it is.
func TestForeignSpool(t *testing.T) {
	t.Parallel()
	one, two := newBucket(t), newBucket(t)
	two.location = strings.Replace(two.location, "/run?", "/other?", 1)
	two = two.client(t)
	dir, local := t.TempDir(), t.TempDir()
	cfg := one.next(t, sink.Config{RunID: "one", CommitGroups: true})
	d := open(t, dir, cfg)
	wait := start(t.Context(), t, d)
	waiting := samples(2)[:1] // of a group of 2
	appendAll(t, d, waiting...)
	must(t, errors.Join(d.Close(t.Context()), wait()))
	sinktest.Write(t, local, sink.Config{}, samples(1))

	for _, tt := range []struct {
		name, dir string
		cfg       sink.Config
		want      string
	}{
		{"another run", dir, sink.Config{Store: one, RunID: "two", Epoch: 9}, `belongs to run "one" in s3://bucket/run, and not to run "two" in s3://bucket/run`},
		{"another store", dir, sink.Config{Store: two, RunID: "one", Epoch: 9}, "and not to run \"one\" in s3://bucket/other"},
		{"no store", dir, sink.Config{RunID: "one"}, "and not to a run in this folder"},
		{"a local run", local, sink.Config{Store: two, Epoch: 9}, "belongs to a run in this folder"},
	} {
		before, requests := tree(t, tt.dir), len(one.server.Keys("bucket"))+len(two.server.Keys("bucket"))
		_, err := sink.Create(tt.dir, tt.cfg)
		if shard, ok := errors.AsType[*sink.ShardError](err); !ok || !strings.Contains(err.Error(), tt.want) || shard.Op != "open" {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
		if after := tree(t, tt.dir); after != before || len(one.server.Keys("bucket"))+len(two.server.Keys("bucket")) != requests {
			t.Errorf("%s: the folder or the bucket has changed: %s, was %s", tt.name, after, before)
		}
	}
	must(t, os.WriteFile(filepath.Join(dir, ".tmp-store.json-x"), nil, 0o666))
	if r := open(t, dir, one.next(t, cfg)).Recovered(); r.Waiting != 1 {
		t.Errorf("recovered %+v, want the waiting sample", r)
	}
	if strings.Contains(tree(t, dir), ".tmp-") {
		t.Errorf("left: %s", tree(t, dir))
	}
	must(t, os.WriteFile(filepath.Join(dir, "store.json"), []byte("{"), 0o666))
	if _, err := sink.Create(dir, one.next(t, cfg)); !errors.Is(err, sink.ErrCorrupt) {
		t.Errorf("a damaged tag: %v", err)
	}
}

// TestSpoolOfFolder tests that a folder with another path to the same store is not the folder of another dataset.
func TestSpoolOfFolder(t *testing.T) {
	t.Parallel()
	spool, shared := t.TempDir(), t.TempDir()
	here, err := os.Getwd()
	must(t, err)
	relative, err := filepath.Rel(here, shared)
	must(t, err)
	for i, dir := range []string{relative, shared, shared + "/.", relative} {
		cfg := sink.Config{RunID: "one", Store: store.Folder(sink.OS(), dir), Epoch: int64(i + 1)}
		sinktest.Write(t, spool, cfg, alone(samples(i + 1))[i:])
	}
	_, err = sink.Create(spool, sink.Config{RunID: "one", Store: store.Folder(sink.OS(), filepath.Join(relative, "other")), Epoch: 5})
	if want := "and not to run \"one\" in " + filepath.Join(shared, "other"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("another folder: %v, want %q", err, want)
	}
}

// tree returns the names of all files below a folder.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var names []string
	must(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		names = append(names, strings.TrimPrefix(path, dir))
		return err
	}))
	return strings.Join(names, " ")
}
