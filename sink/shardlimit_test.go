package sink_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/tokenize"
)

// TestStoredShardLimit tests that no shard is larger than a store accepts: a large group is in
// several commits, and a sample that can never be stored is refused.
func TestStoredShardLimit(t *testing.T) {
	t.Parallel()
	b, dir := newBucket(t), t.TempDir()
	const limit = 100_000
	cfg := b.next(t, sink.Config{CommitGroups: true, Format: sink.Arrow, MaxShardBytes: limit})
	d := open(t, dir, cfg)
	wait := start(t.Context(), t, d)
	list := func() []*tokenize.Sample {
		list := group(sinktest.NewBuilder(1), 1, 8)
		for _, s := range list {
			s.Metadata = new(strconv.Quote(strings.Repeat("metadata", 3000)))
		}
		return list
	}
	huge := sinktest.NewBuilder(2).Sample(sinktest.NewBuilder(2).Row(2, 3))
	huge.Metadata = new(strconv.Quote(strings.Repeat("x", sink.MaxStoredShard/2)))
	if refused, ok := errors.AsType[*sink.SampleError](d.Append(t.Context(), huge, nil)); !ok || !refused.Refused() {
		t.Error("a sample that does not fit into a shard is accepted")
	}
	commitAll(t, d, list()...)
	must(t, errors.Join(d.Close(t.Context()), wait()))
	log := b.readLog(t)
	compareLog(t, log, list())
	var groups sink.GroupLog
	whole := 0
	for i := range log.Commits {
		whole += len(groups.Add(&log.Commits[i]))
		for _, s := range log.Commits[i].Shards {
			if s.Bytes > limit+20_000 { // the metadata of the file
				t.Errorf("a shard of %d bytes", s.Bytes)
			}
		}
	}
	if whole != 1 || len(log.Commits) < 3 {
		t.Errorf("%d whole groups in %d commits", whole, len(log.Commits))
	}
	b.verify(t)
	cfg.MaxShardBytes, cfg.Epoch = sink.DefaultMaxShardBytes, 0
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "max_shard_bytes") || !strings.Contains(err.Error(), "epoch is 0") {
		t.Errorf("Validate() = %v", err)
	}
}
