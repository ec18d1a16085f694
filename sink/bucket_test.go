package sink_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/sink/store"
	"github.com/rollout-rl/rollout/sink/store/storetest"
	"github.com/rollout-rl/rollout/tokenize"
)

// TestBucketSuite is the acceptance suite in a bucket, with and without faults.
func TestBucketSuite(t *testing.T) {
	t.Parallel()
	folders := []string{"data", "failures", "_commits", "_checkpoints"} // no card, and nothing that was set aside
	b100 := sinktest.NewBuilder(1)
	var many []*tokenize.Sample
	for i := range 100 {
		if i%10 == 9 {
			many = append(many, b100.Failure(100))
			continue
		}
		many = append(many, b100.Sample(b100.Row(1000, 500), b100.Row(2000, 700, 10, 30)))
	}
	for _, tt := range []struct {
		name    string
		cfg     sink.Config
		samples []*tokenize.Sample
	}{
		{"returns every value", sink.Config{RowGroupTokens: 50_000}, sinktest.Edge()},
		{"many small shards", sink.Config{RowGroupTokens: 2000, MaxShardBytes: 100_000}, many},
	} {
		for _, format := range []sink.Format{sink.Parquet, sink.Arrow} {
			for _, share := range []float64{0, 0.2} {
				t.Run(fmt.Sprintf("%s/%s/faults=%v", tt.name, format, share), func(t *testing.T) {
					t.Parallel()
					b := newBucket(t)
					cfg := b.next(t, tt.cfg)
					cfg.Format, cfg.VocabSize = format, sinktest.Vocab
					b.proxy.Plan(bucketFaults(7, share))
					dir := t.TempDir()
					half := len(tt.samples) / 2
					sinktest.Write(t, dir, cfg, slices.Clone(tt.samples[:half]))
					stats := sinktest.Write(t, dir, b.next(t, cfg), slices.Clone(tt.samples[half:]))
					compareLog(t, b.readLog(t), tt.samples)
					if r := b.verify(t); len(r.Orphans) > 0 {
						t.Errorf("orphans: %q", r.Orphans)
					}
					if tt.cfg.MaxShardBytes > 0 && stats.Commits < 3 {
						t.Errorf("%d commits", stats.Commits)
					}
					for _, key := range b.server.Keys("bucket") {
						if folder, _, _ := strings.Cut(strings.TrimPrefix(key, "run/"), "/"); !slices.Contains(folders, folder) || strings.Contains(key, ".tmp-") {
							t.Errorf("the bucket has %s", key)
						}
					}
				})
			}
		}
	}
}

// TestClaims tests that a process can no longer commit when another process has claimed the log,
// and that its spool and its shards do no harm.
func TestClaims(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	first, second := t.TempDir(), t.TempDir()
	all := alone(samples(3))
	config := b.next(t, sink.Config{})
	d := open(t, first, config)
	wait := start(t.Context(), t, d)
	appendAll(t, d, all[0], all[1]) // in the write-ahead log only

	if _, err := sink.Create(second, config); !errors.Is(err, sink.ErrFenced) {
		t.Errorf("a second claim of epoch 1: %v, want ErrFenced", err)
	}
	sinktest.Write(t, second, b.next(t, sink.Config{}), alone(samples(1)))
	if err := d.Close(t.Context()); !errors.Is(err, sink.ErrFenced) || !errors.Is(wait(), sink.ErrFenced) {
		t.Errorf("a commit after another claim: %v, want ErrFenced", err)
	}
	if err := d.Seal(); !errors.Is(err, sink.ErrFenced) {
		t.Errorf("Seal() = %v, want ErrFenced", err)
	}
	if r := b.verify(t); len(r.Orphans) != 1 || !strings.HasPrefix(r.Orphans[0], "data/part-run-1-1-") || r.Samples != 1 {
		t.Errorf("Verify = %+v, want the shard of the fenced process as an orphan", r)
	}

	// Another process can claim a higher epoch before this one deletes shards, and then commit
	// these.
	later := []string{
		"data/part-run-3-7-01234567.parquet", "data/part-run-4-7-01234567.parquet", "data/part-run-4m-1-01234567.arrow",
		"data/part-my-run-1-7-01234567.parquet", "data/part-run-1-7-01234567.parquet.bak", "data/part-run-1-7-backup.parquet", "data/part-run-copy-1-7-01234567.parquet", "data/part-x.parquet",
	}
	slices.Sort(later)
	for _, name := range later {
		must(t, b.Put(name, []byte("later")))
	}
	must(t, b.Put("failures/part-run-2m-1-01234567.parquet", []byte("earlier")))
	third := open(t, first, b.next(t, sink.Config{})) // with the spool of the fenced process
	if r := third.Recovered(); r.Known != 1 || r.Replayed != 1 || r.Deleted != 2 {
		t.Errorf("recovered %+v, want one known sample, one replayed and two deleted shards", r)
	}
	if r := b.verify(t); !slices.Equal(r.Orphans, later) || r.Samples != 2 {
		t.Errorf("Verify = %+v", r)
	}
	if err := third.Acknowledge(sink.Cursor{RunID: "run", Seq: 1}); err == nil || third.Acknowledged() != (sink.Cursor{}) {
		t.Errorf("Acknowledge with a store: %v", err)
	}
	if err := third.Seal(); err == nil {
		t.Error("Seal before Run: no error")
	}
	wait = start(t.Context(), t, third)
	appendAll(t, third, all[2])
	must(t, errors.Join(third.Close(t.Context()), wait(), third.Seal()))
	if _, err := sink.Create(second, b.next(t, sink.Config{})); !errors.Is(err, sink.ErrSealed) {
		t.Errorf("Create of a sealed dataset = %v, want ErrSealed", err)
	}
	compareLog(t, b.readLog(t), alone(samples(3)))
	if log := b.readLog(t); !log.Sealed() || log.Claim().Epoch != 3 || log.Claim().Worker != "worker" {
		t.Errorf("sealed %t, claim %+v", log.Sealed(), log.Claim())
	}
}

// TestBrokenClaims tests that readers find entries that depend on a claim other than the last one
// below them.
func TestBrokenClaims(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		edit func(c *sink.Commit)
		want string
	}{
		{"right", func(*sink.Commit) {}, ""},
		{"an earlier claim", func(c *sink.Commit) { c.Claim, c.Epoch = 1, 1 }, "no longer owned the log"},
		{"no claim", func(c *sink.Commit) { c.Claim, c.Epoch = 0, 0 }, "no longer owned the log"},
		{"another epoch", func(c *sink.Commit) { c.Epoch = 3 }, "no longer owned the log"},
		{"itself", func(c *sink.Commit) { c.Claim = c.Seq }, "the claim must be before the entry"},
		{"a claim of the same epoch", func(c *sink.Commit) { c.Kind = "claim" }, "a claim of epoch 2 follows claim 3 of epoch 2"},
		{"another kind", func(c *sink.Commit) { c.Kind = "x" }, "must be claim, sealed or empty"},
		{"a claim with samples", func(c *sink.Commit) {
			c.Kind, c.Groups = "claim", []sink.CommittedGroup{{ID: "g", Size: 1}}
			c.Samples = []sink.CommittedSample{{Key: "k", Attempt: 1}}
		}, "has shards, samples or replaced entries"},
		{"after the end", func(c *sink.Commit) { c.Seq++ }, "which ends the log"},
		{"a claim after the end", func(c *sink.Commit) { c.Seq++; c.Kind, c.Epoch, c.Claim = "claim", 3, 0 }, "which ends the log"},
		{"a merge", func(c *sink.Commit) { c.Replaces = []sink.SeqRange{{4, 4}} }, ""},
		{"a merge of a claim", func(c *sink.Commit) { c.Replaces = []sink.SeqRange{{3, 4}} }, "is a claim or the end"},
		{"a merge after the end", func(c *sink.Commit) { c.Seq++; c.Replaces = []sink.SeqRange{{4, 4}} }, "ends the log"},
		{"a merge of the end", func(c *sink.Commit) { c.Seq++; c.Replaces = []sink.SeqRange{{4, 5}} }, "the log"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBucket(t)
			for _, s := range alone(samples(2)) {
				sinktest.Write(t, t.TempDir(), b.next(t, sink.Config{}), []*tokenize.Sample{s})
			}
			put := func(c sink.Commit) {
				body, err := sink.EncodeCommit(&c)
				must(t, err)
				must(t, b.PutNew(fmt.Sprintf("_commits/%020d.json", c.Seq), body))
			}
			c := sink.Commit{Version: 1, SchemaVersion: 1, RunID: "run", Seq: 5, Epoch: 2, Claim: 3}
			tt.edit(&c)
			if c.IsMerge() { // of entry 4
				last := b.readLog(t).Commits[1]
				c.Shards, c.Groups, c.Samples = last.Shards, last.Groups, last.Samples
				c.Merged = []sink.MergedCommit{{Seq: 4, Samples: len(last.Samples), Tokens: last.Shards[0].Tokens.Total}}
			}
			if c.Seq == 6 {
				put(sink.Commit{Version: 1, SchemaVersion: 1, RunID: "run", Seq: 5, Epoch: 2, Claim: 3, Kind: "sealed"})
			}
			put(c)
			dir := t.TempDir()
			must(t, os.CopyFS(dir, b.files(t)))
			for _, objects := range []store.Store{b, nil} {
				spool := ""
				if objects == nil { // a copy of the bucket in a folder
					spool = dir
				}
				_, err := sink.ReadLogIn(objects, spool, nil)
				report, verr := sink.Verify(t.Context(), spool, sink.VerifyOptions{Store: objects})
				must(t, verr)
				if tt.want == "" {
					if err != nil || report.ProblemCount > 0 {
						t.Errorf("%v, %v", err, report.Problems)
					}
					continue
				}
				if !errors.Is(err, sink.ErrCorrupt) || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("ReadLogIn(%q): %v, want %q", spool, err, tt.want)
				}
				if report.ProblemCount == 0 || !strings.Contains(report.Problems[0].Error(), tt.want) {
					t.Errorf("Verify(%q): %v, want %q", spool, report.Problems, tt.want)
				}
			}
		})
	}
}

// TestMergeBucket tests that merges change no object, and that a reader finds rows whose old shards
// have been deleted.
func TestMergeBucket(t *testing.T) {
	t.Parallel()
	b, dir := newBucket(t), t.TempDir()
	cfg := b.next(t, sink.Config{MergeAt: 3})
	cfg.Epoch = 0
	smallCommits(t, dir, cfg, 11, 5)
	before := b.readLog(t)
	want := linesOf(t, before)
	old := map[string][]byte{}
	for _, key := range b.server.Keys("bucket") {
		name := strings.TrimPrefix(key, "run/")
		body, err := b.Get(name)
		must(t, err)
		old[name] = body
	}
	b.proxy.Plan(bucketFaults(3, 0.1))
	d := open(t, dir, b.next(t, cfg))
	if n, err := d.MergeAll(t.Context()); err != nil || n < 2 {
		t.Fatalf("%d merges, %v", n, err)
	}
	b.proxy.Plan(nil)
	for _, name := range []string{logCheckpoint, tailCheckpoint} {
		delete(old, name)
	}
	for name, body := range old {
		if now, err := b.Get(name); err != nil || string(now) != string(body) {
			t.Errorf("%s has changed: %v", name, err)
		}
	}
	check := func(log *sink.Log) {
		t.Helper()
		if got := linesOf(t, log); !slices.Equal(got, want) {
			t.Errorf("%d lines, want %d", len(got), len(want))
		}
	}
	check(b.readLog(t))
	if r := b.verify(t); len(r.Orphans) > 0 {
		t.Errorf("orphans: %q", r.Orphans)
	}
	live := map[string]bool{}
	for _, c := range b.readLog(t).Commits {
		for _, s := range c.Shards {
			live[s.Path] = true
		}
	}
	// A shard is deleted between the request that opens it and the first one that reads it.
	first := before.Commits[0].Shards[0]
	b.proxy.Plan(func(r *http.Request) storetest.Fault {
		if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, first.Path) {
			return nil
		}
		return func(w http.ResponseWriter, r *http.Request, server http.Handler) {
			remove := r.Clone(r.Context())
			remove.Method = http.MethodDelete
			server.ServeHTTP(httptest.NewRecorder(), remove)
			server.ServeHTTP(w, r)
		}
	})
	if _, err := before.Row(first, 0); err != nil {
		t.Errorf("a row of a shard that has been deleted after Open: %v", err)
	}
	b.proxy.Plan(nil)
	for name := range maps.Keys(old) {
		if strings.Contains(name, "/part-") && !live[name] {
			must(t, b.Delete(name))
		}
	}
	must(t, before.CheckSizes())
	must(t, before.CheckDigests(t.Context(), nil, func(err error) { t.Errorf("found %v", err) }))
	check(before) // this log still names the old shards
	b.verify(t)
	open(t, t.TempDir(), b.next(t, cfg)) // a process on another machine
	check(b.readLog(t))

	gone := b.readLog(t).Commits[0].Shards[0]
	must(t, b.Delete(gone.Path))
	if err := b.readLog(t).CheckSizes(); !errors.Is(err, sink.ErrCorrupt) {
		t.Errorf("CheckSizes() = %v", err)
	}
	if _, err := b.readLog(t).Row(gone, 0); !errors.Is(err, sink.ErrCorrupt) {
		t.Errorf("Row() = %v", err)
	}
	if r, err := sink.Verify(t.Context(), "", sink.VerifyOptions{Store: b}); err != nil || r.ProblemCount != 1 {
		t.Errorf("Verify: %v, %v", err, r.Problems)
	}
}

// TestGateBucketRequests bounds the requests of a claim of a new log and of a commit.
func TestGateBucketRequests(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	b.requests.Take()
	cfg := sink.Config{CommitGroups: true, MergeAt: 1000, Store: b, Epoch: 1}
	d := open(t, t.TempDir(), cfg)
	if r := b.requests.Take(); r["list"] != 1 || r["put"] != 1 || r["get"]+r["head"]+r["delete"] > 0 {
		t.Errorf("a claim made these requests: %v", r)
	}
	_, err := sink.Create(t.TempDir(), cfg)
	if r := b.requests.Take(); !errors.Is(err, sink.ErrFenced) || r["list"] != 1 || r["get"] != 1 || r["put"]+r["head"]+r["delete"] > 0 {
		t.Errorf("a second claim made these requests: %v (%v)", r, err)
	}
	wait := start(t.Context(), t, d)
	builder := sinktest.NewBuilder(8)
	count := func() [5]int64 {
		r := b.requests
		return [5]int64{r.Put.Load(), r.Head.Load(), r.Get.Load(), r.List.Load(), r.Delete.Load()}
	}
	for _, tt := range []struct {
		name string
		list []*tokenize.Sample
		want [5]int64
	}{
		{"data", alone([]*tokenize.Sample{builder.Sample(builder.Row(5, 5))}), [5]int64{3, 1}}, // with a checkpoint
		{"failures", alone([]*tokenize.Sample{builder.Failure(3)}), [5]int64{2, 1}},
		{"both", group(builder, 1, 4), [5]int64{4, 2}}, // with a checkpoint
		{"no rows", alone([]*tokenize.Sample{builder.Sample()}), [5]int64{1}},
	} {
		before := count()
		commitAll(t, d, tt.list...)
		var after [5]int64
		for end := time.Now().Add(5 * time.Second); after != tt.want && time.Now().Before(end); time.Sleep(time.Millisecond) { // the checkpoint follows the commit
			after = count()
			for i := range after {
				after[i] -= before[i]
			}
		}
		t.Logf("%s: %d requests to put, %d head, %d get, %d list, %d delete", tt.name, after[0], after[1], after[2], after[3], after[4])
		if after != tt.want {
			t.Errorf("%s: %d requests, want %d", tt.name, after, tt.want)
		}
	}
	must(t, errors.Join(d.Close(t.Context()), wait()))
}
