package sink_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
)

// TestClockJumps tests that setting the clock during a run changes only the dates of commits. Shards are
// committed at the same age, the log and the shards of three processes stay in the order of their numbers,
// and neither readers nor recovery use dates.
func TestClockJumps(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	jumps := []time.Duration{-time.Hour, 24 * time.Hour, -year, 3 * year, -40 * year, 0}
	for _, format := range []sink.Format{sink.Parquet, sink.Arrow} {
		dir := t.TempDir()
		var jumped atomic.Int64 // the clock runs like the system's, except for this
		all := samples(len(jumps) + 3)
		cfg := sink.Config{Format: format, MaxShardAge: time.Minute, Now: func() time.Time {
			return time.Now().Round(0).Add(time.Duration(jumped.Load()))
		}}
		var dated []time.Time // as committed
		synctest.Test(t, func(t *testing.T) {
			cfg := cfg
			cfg.Events.Committed = func(c sink.Commit) { dated = append(dated, c.CreatedAt) }
			d := open(t, dir, cfg)
			wait := start(t.Context(), t, d)
			for i, by := range jumps {
				done := make(chan time.Duration, 1)
				began := time.Now()
				must(t, d.Append(t.Context(), all[i], func(error) { done <- time.Since(began) }))
				time.Sleep(20 * time.Second)
				jumped.Add(int64(by)) // while the shard is open
				if age := <-done; age != time.Minute {
					t.Errorf("a jump by %v: committed after %v, want one minute", by, age)
				}
			}
			must(t, errors.Join(d.Close(t.Context()), wait()))
		})

		// A kill, and a recovery a year earlier by the clock; then one more sample.
		left := all[len(jumps) : len(jumps)+2]
		interruptedIn(t, dir, left, cfg)
		jumped.Add(int64(-year))
		d := open(t, dir, cfg)
		if got := d.Recovered(); got.Replayed != int64(len(left)) || got.Commits != 1 {
			t.Errorf("Recovered() = %+v, want the %d samples in one commit", got, len(left))
		}
		sinktest.Write(t, dir, cfg, all[len(all)-1:])

		log := readLog(t, dir)
		var keys, want []string
		var times []time.Time
		for i, c := range log.Commits {
			shard := fmt.Sprintf("data/part-run-0-%d-", i) // the number alone makes it unique: digests can collide
			if c.Seq != int64(i+1) || !strings.HasPrefix(c.Shards[0].Path, shard) {
				t.Errorf("commit %d of the log is number %d, with the shard %s", i+1, c.Seq, c.Shards[0].Path)
			}
			times = append(times, c.CreatedAt)
			for _, s := range c.Samples {
				keys = append(keys, s.Key)
			}
		}
		for _, s := range samples(len(all)) {
			want = append(want, s.Key)
		}
		if !slices.Equal(keys, want) {
			t.Errorf("the log holds %q, want %q in the order of the commits", keys, want)
		}
		if slices.IsSortedFunc(times, time.Time.Compare) || !slices.EqualFunc(times[:len(dated)], dated, time.Time.Equal) {
			t.Errorf("commits are dated %v, but the clock showed %v and went back", times, dated)
		}
		report := wholeVerify(t, dir)
		if len(report.Orphans) > 0 || report.Samples != int64(len(all)) {
			t.Errorf("Verify: orphans %q, %d samples, want %d", report.Orphans, report.Samples, len(all))
		}
		compareDataset(t, dir, samples(len(all)))
	}
}
