package sink_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/sink/store/storetest"
	"github.com/rollout-rl/rollout/tokenize"
)

func entryKey(seq int) string { return fmt.Sprintf("run/_commits/%020d.json", seq) }

// omit makes lists omit an object.
func (b *testBucket) omit(key string) {
	contents := regexp.MustCompile(`<Contents><Key>` + regexp.QuoteMeta(strings.ReplaceAll(key, "/", "%2F")) + `</Key>.*?</Contents>`)
	b.proxy.Plan(func(r *http.Request) storetest.Fault {
		if !r.URL.Query().Has("list-type") {
			return nil
		}
		return func(w http.ResponseWriter, r *http.Request, server http.Handler) {
			answer := httptest.NewRecorder()
			server.ServeHTTP(answer, r)
			_, _ = w.Write(contents.ReplaceAll(answer.Body.Bytes(), nil)) // an error shows at the client
		}
	})
}

// noCheckpoints deletes all checkpoints.
func (b *testBucket) noCheckpoints(t *testing.T) {
	t.Helper()
	for _, key := range b.server.Keys("bucket") {
		if strings.Contains(key, "_checkpoints/") {
			must(t, b.Delete(strings.TrimPrefix(key, "run/")))
		}
	}
}

// TestListOmitsEntry tests that a list that omits an entry but contains a later one changes nothing:
// in a bucket, the earlier entry must exist.
func TestListOmitsEntry(t *testing.T) {
	t.Parallel()
	for _, merged := range []bool{false, true} {
		t.Run(fmt.Sprintf("merged=%t", merged), func(t *testing.T) {
			t.Parallel()
			b, dir := newBucket(t), t.TempDir()
			cfg := b.next(t, sink.Config{CommitGroups: true, MergeAt: 100, FS: unsynced{sink.OS()}})
			builder := sinktest.NewBuilder(1)
			var all []*tokenize.Sample
			commits := func(n int) {
				d := open(t, dir, cfg)
				d.SetSyncEvery(0)
				wait := start(t.Context(), t, d)
				for range n {
					s := alone([]*tokenize.Sample{builder.Sample(builder.Row(2, 3))})
					all = append(all, s...)
					commitAll(t, d, s...)
				}
				must(t, errors.Join(d.Close(t.Context()), wait()))
			}
			commits(7)
			if merged {
				cfg = b.next(t, cfg)
				cfg.MergeAt = 7
				if n, err := open(t, dir, cfg).MergeAll(t.Context()); n < 1 || err != nil {
					t.Fatalf("%d merges, %v", n, err)
				}
				cfg.MergeAt = 100
			}
			b.noCheckpoints(t)
			want := linesOf(t, b.readLog(t))
			b.omit(entryKey(6))
			if got := linesOf(t, b.readLog(t)); !slices.Equal(got, want) {
				t.Errorf("%d lines, want %d", len(got), len(want))
			}
			b.verify(t)
			cfg.Epoch += 2
			commits(70)
			b.proxy.Plan(nil)
			compareLog(t, b.readLog(t), all)
			b.verify(t)
			c := b.client(t)
			before := c.reads()
			c.readLog(t)
			if n := c.reads() - before; n > 8 {
				t.Errorf("a reader made %d requests", n)
			}
		})
	}
}

// TestMissingEntry tests that a bucket without one of its entries is not read as a shorter log, and
// that only Verify calls it damage.
func TestMissingEntry(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	for _, s := range alone(samples(3)) {
		sinktest.Write(t, t.TempDir(), b.next(t, sink.Config{}), []*tokenize.Sample{s})
	}
	b.noCheckpoints(t)
	must(t, b.Delete(strings.TrimPrefix(entryKey(4), "run/")))
	_, err := sink.ReadLogIn(b, "", nil)
	if shard, ok := errors.AsType[*sink.ShardError](err); !ok || errors.Is(err, sink.ErrCorrupt) || !errors.Is(err, fs.ErrNotExist) || !strings.HasSuffix(shard.Path, "4.json") {
		t.Errorf("ReadLogIn: %v", err)
	}
	check := func() {
		t.Helper()
		if r, err := sink.Verify(t.Context(), "", sink.VerifyOptions{Store: b}); err != nil || r.ProblemCount == 0 || !strings.Contains(r.Problems[0].Error(), "4.json") {
			t.Errorf("Verify: %v, %v", err, r.Problems)
		}
	}
	check()
	// A file that is not part of the log must not make a reader request all numbers below it.
	must(t, b.Put("_commits/00000009999999999999.json", []byte("{}")))
	if _, err := sink.ReadLogIn(b, "", nil); !errors.Is(err, sink.ErrCorrupt) || !strings.Contains(err.Error(), "4.json: the file is missing, like 9999999999992 others before entry 9999999999999") {
		t.Errorf("ReadLogIn: %v", err)
	}
	check()
}
