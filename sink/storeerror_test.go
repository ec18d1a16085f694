package sink_test

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"testing"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/store/storetest"
)

// TestStoreErrors tests that a bucket that cannot be read does not look like a damaged dataset.
func TestStoreErrors(t *testing.T) {
	t.Parallel()
	b := newBucket(t)
	cfg := b.next(t, sink.Config{MergeAt: 2})
	cfg.Epoch = 0
	smallCommits(t, t.TempDir(), cfg, 4, 9)
	b.noCheckpoints(t)
	stop := func(t *testing.T, kill context.CancelCauseFunc) { t.Helper(); kill(context.Canceled) }
	deny := func(t *testing.T, _ context.CancelCauseFunc) {
		t.Helper()
		b.proxy.Plan(func(r *http.Request) storetest.Fault {
			if r.Method == http.MethodGet && !r.URL.Query().Has("list-type") {
				return storetest.Answer(403, "AccessDenied")
			}
			return nil
		})
	}
	for _, tt := range []struct {
		name string
		fail func(*testing.T, context.CancelCauseFunc)
		want error
	}{{"context", stop, context.Canceled}, {"denied", deny, fs.ErrPermission}} {
		log := b.readLog(t)
		var shard sink.Shard
		for s := range log.Shards(sink.KindData) {
			shard = s
		}
		for name, read := range map[string]func(*testBucket) error{
			"ReadLogIn": func(b *testBucket) error { _, err := sink.ReadLogIn(b, "", nil); return err },
			"Row":       func(b *testBucket) error { _, err := log.In(b).Row(shard, 0); return err },
			"Meta":      func(b *testBucket) error { _, err := log.In(b).Meta(shard); return err },
			"Rows": func(b *testBucket) (err error) {
				for _, err = range log.In(b).Rows(shard) {
				}
				return err
			},
			"CheckDigests": func(b *testBucket) error {
				return log.In(b).CheckDigests(context.Background(), nil, func(err error) { t.Errorf("%s: found %v", tt.name, err) })
			},
			"Verify": func(b *testBucket) error {
				r, err := sink.Verify(context.Background(), "", sink.VerifyOptions{Store: b})
				if r.ProblemCount > 0 {
					t.Errorf("%s: Verify: %v", tt.name, r.Problems)
				}
				return err
			},
		} {
			p, kill := b.process(t, sink.OS())
			tt.fail(t, kill)
			if err := read(p); !errors.Is(err, tt.want) || errors.Is(err, sink.ErrCorrupt) {
				t.Errorf("%s: %s: %v, want %v and no damage", tt.name, name, err, tt.want)
			}
			b.proxy.Plan(nil)
		}
	}
	// The merger excludes an entry that is damaged, but not one that it could not read.
	d := open(t, t.TempDir(), b.next(t, cfg))
	deny(t, nil)
	if _, err := d.MergeAll(t.Context()); !errors.Is(err, fs.ErrPermission) || errors.Is(err, sink.ErrCorrupt) {
		t.Errorf("a merge: %v", err)
	}
	b.proxy.Plan(nil)
	// A shard is missing, and whether a merge has replaced it is unknown.
	log := b.readLog(t)
	must(t, b.Delete(log.Commits[0].Shards[0].Path))
	deny(t, nil)
	if err := log.CheckSizes(); !errors.Is(err, fs.ErrPermission) || errors.Is(err, sink.ErrCorrupt) {
		t.Errorf("CheckSizes() = %v", err)
	}
	b.proxy.Plan(nil)
}
