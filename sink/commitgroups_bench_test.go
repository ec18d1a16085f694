package sink_test

import (
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
)

// BenchmarkCommitGroup commits groups of 8 samples of a thousand tokens one by one. It measures the
// processor time of each without merges and with the merges of 1,000 commits.
func BenchmarkCommitGroup(b *testing.B) {
	for _, tt := range []struct {
		format  sink.Format
		mergeAt int
	}{{sink.Parquet, 1 << 20}, {sink.Parquet, 0}, {sink.Arrow, 1 << 20}, {sink.Arrow, 0}} {
		format := tt.format
		name := format.String()
		if tt.mergeAt == 0 {
			name += "/merged"
		}
		b.Run(name, func(b *testing.B) {
			told := make(chan struct{}, 8)
			d, err := sink.Create(b.TempDir(), sink.Config{Format: format, CommitGroups: true, MergeAt: tt.mergeAt, Events: sink.Events{
				Committed: func(sink.Commit) { told <- struct{}{} },
			}})
			must(b, err)
			var run sync.WaitGroup
			run.Go(func() { _ = d.Run(b.Context()) })
			build := sinktest.NewBuilder(1)
			b.ReportAllocs()
			before := cpu(b)
			for n := 0; b.Loop(); n++ {
				var feed sync.WaitGroup
				for i := range 8 {
					s := grouping(build.Sample(build.Row(200, 800)), n, 8, i)
					feed.Go(func() {
						if err := d.Append(b.Context(), s, func(error) {}); err != nil {
							b.Error(err)
						}
					})
				}
				feed.Wait()
				<-told
			}
			if tt.mergeAt == 0 {
				b.ReportMetric(float64(d.Stats().Merges)/float64(b.N), "merges/commit")
			}
			b.ReportMetric(float64((cpu(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/commit")
			must(b, d.Close(b.Context()))
			run.Wait()
		})
	}
}
