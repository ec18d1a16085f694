package sink_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/sink/store"
)

// TestStoreAgain tests that storing, reading and storing again preserves a dataset in both formats.
func TestStoreAgain(t *testing.T) {
	t.Parallel()
	for _, format := range []sink.Format{sink.Parquet, sink.Arrow} {
		t.Run(format.String(), func(t *testing.T) {
			t.Parallel()
			dir, again := t.TempDir(), t.TempDir()
			sinktest.Write(t, dir, sink.Config{Format: format, RowGroupTokens: 3000, MaxShardBytes: 400_000, Meta: map[string]string{"a": "b"}}, sinktest.Edge())
			log := readLog(t, dir)
			for s := range log.Shards(sink.KindData) {
				if meta, err := log.Meta(s); err != nil || !reflect.DeepEqual(meta, map[string]string{"a": "b"}) {
					t.Errorf("Meta() = %v, %v", meta, err)
				}
			}
			for s, err := range log.Stored(sink.KindFailures) {
				if err != nil || len(s.Rows) > 0 || len(s.Failures) != 1 {
					t.Errorf("a failure: %+v, %v", s, err)
				}
			}
			stats, err := sink.Store(again, sink.Config{Format: 1 - format, MaxShardBytes: 900_000}, log.Stored())
			if err != nil || stats.Commits < 2 {
				t.Fatalf("Store() = %+v, %v", stats, err)
			}
			compareDataset(t, again, sinktest.Edge())
			verify(t, again)
			cardNames(t, again, true)
			// In the same order: sample by sample, as committed.
			keys := func(of *sink.Log) (keys []string) {
				for s := range each(t, of.Stored()) {
					keys = append(keys, s.Key)
				}
				return keys
			}
			if a, b := keys(log), keys(readLog(t, again)); !slices.Equal(a, b) || len(a) < 50 {
				t.Errorf("the order is %q, was %q", b, a)
			}
			if a, b := keys(log), keys(got(sink.ReadLogIn(nil, dir, func(*sink.Commit) {}))(t)); !slices.Equal(a, b) {
				t.Errorf("a log without lists yields %q, want %q", b, a)
			}
			if _, err := sink.Store(t.TempDir(), sink.Config{Store: store.Folder(sink.OS(), again), Epoch: 1}, log.Stored()); err == nil || !strings.Contains(err.Error(), "Config.Store") {
				t.Errorf("Store into a store: %v", err)
			}
			if _, err := sink.Store(again, sink.Config{}, log.Stored()); err == nil {
				t.Error("Store took a folder with a dataset")
			}
		})
	}
}

// TestStoreRefuses tests that Store refuses what Verify would report. The rules within a row are tested by
// TestVerifyFindsWhatIsWrong.
func TestStoreRefuses(t *testing.T) {
	t.Parallel()
	b, dir := sinktest.NewBuilder(3), t.TempDir()
	two := b.Sample(b.Row(3, 4), b.Row(2, 2))
	sinktest.Write(t, dir, sink.Config{}, append(samples(0), two, b.Sample(), b.Failure(3)))
	log := readLog(t, dir)
	for _, tt := range []struct {
		name string
		edit func(parts []*sink.StoredSample) []*sink.StoredSample
		want string
	}{
		{"mask", func(p []*sink.StoredSample) []*sink.StoredSample { p[0].Rows[0].LossMask[0] = 1; return p }, "mask 1 in a prompt span"},
		{"a segment is missing", func(p []*sink.StoredSample) []*sink.StoredSample { return p[1:] }, "segment 1 of 2, want 0 of 1"},
		{"another order", func(p []*sink.StoredSample) []*sink.StoredSample { p[0], p[1] = p[1], p[0]; return p }, "segment 1 of 2, want 0 of 2"},
		{"twice", func(p []*sink.StoredSample) []*sink.StoredSample { return slices.Concat(p, p[:2]) }, "already committed"},
		{"group", func(p []*sink.StoredSample) []*sink.StoredSample { p[1].Rows[0].GroupID = "x"; return p }, `group_id is "x"`},
		{"utf8", func(p []*sink.StoredSample) []*sink.StoredSample { p[1].Rows[0].Model = "\xff"; return p }, "Model: "},
		{"no group", func(p []*sink.StoredSample) []*sink.StoredSample { p[2].Group = sink.CommittedGroup{}; return p }, "out of range for a group of 0"},
		{"call", func(p []*sink.StoredSample) []*sink.StoredSample { p[3].Failures[0].Call = -2; return p }, "call is -2"},
		{"attempt", func(p []*sink.StoredSample) []*sink.StoredSample {
			p[3].Attempt, p[3].Failures[0].Attempt = 0, 0
			return p
		}, "attempt is 0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var parts []*sink.StoredSample
			for s := range each(t, log.Stored()) {
				parts = append(parts, s)
			}
			// Two rows, the empty sample, the failure, in any original order.
			slices.SortStableFunc(parts, func(a, b *sink.StoredSample) int {
				return len(b.Rows)*2 - len(b.Failures) - len(a.Rows)*2 + len(a.Failures)
			})
			parts = tt.edit(parts)
			_, err := sink.Store(t.TempDir(), sink.Config{}, func(yield func(*sink.StoredSample, error) bool) {
				for _, s := range parts {
					part := *s // Store owns it
					if !yield(&part, nil) {
						return
					}
				}
			})
			if _, ok := errors.AsType[*sink.SampleError](err); !ok || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Store() = %v, want a *SampleError with %q", err, tt.want)
			}
		})
	}
}
