package sinktest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/internal/pool"
	"github.com/rollout-rl/rollout/tokenize"
)

// FillPools creates the encoders that all datasets share. A test binary must call it if it writes datasets in
// bubbles of package synctest.
func FillPools() { pool.Fill() }

// Write creates a dataset in dir, appends the samples from several goroutines, and closes the
// dataset. The test fails unless every sample is committed. With Config.CommitGroups, a sample
// can also wait for its group.
func Write(tb testing.TB, dir string, cfg sink.Config, samples []*tokenize.Sample) sink.Stats {
	tb.Helper()
	d, err := sink.Create(dir, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	ctx := tb.Context()
	var run sync.WaitGroup
	run.Go(func() {
		if err := d.Run(ctx); err != nil {
			tb.Errorf("Run: %v", err)
		}
	})
	var mu sync.Mutex
	done := make(map[string]int)
	work := make(chan *tokenize.Sample)
	var feed sync.WaitGroup
	for range 64 { // concurrent calls of Append share the syncs of the write-ahead log
		feed.Go(func() {
			for s := range work {
				key := s.Key
				err := d.Append(ctx, s, func(err error) {
					mu.Lock()
					defer mu.Unlock()
					done[key]++
					if waits := cfg.CommitGroups && errors.Is(err, sink.ErrWaiting); err != nil && !waits {
						tb.Errorf("done(%s): %v", key, err)
					}
				})
				if err != nil {
					tb.Errorf("Append: %v", err)
				}
			}
		})
	}
	n := len(samples)
	for _, s := range samples {
		work <- s
	}
	close(work)
	feed.Wait()
	if err := d.Close(context.Background()); err != nil {
		tb.Errorf("Close: %v", err)
	}
	run.Wait()
	for key, times := range done {
		if times != 1 {
			tb.Errorf("done of %s was called %d times", key, times)
		}
	}
	if len(done) != n {
		tb.Errorf("done was called for %d samples of %d", len(done), n)
	}
	return d.Stats()
}
