package sink_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/tokenize"
)

// start runs a dataset. The returned function waits for Run and returns its error.
func start(ctx context.Context, t *testing.T, d *sink.Dataset) (wait func() error) {
	t.Helper()
	var run sync.WaitGroup
	var err error
	run.Go(func() { err = d.Run(ctx) })
	return func() error { run.Wait(); return err }
}

func create(t *testing.T, cfg sink.Config) (*sink.Dataset, string) {
	t.Helper()
	dir := t.TempDir()
	d := open(t, dir, cfg)
	return d, dir
}

func samples(n int) (all []*tokenize.Sample) {
	b := sinktest.NewBuilder(4)
	for range n {
		all = append(all, b.Sample(b.Row(100, 900)))
	}
	return all
}

// alone puts each sample into a group of one, so that none is held.
func alone(all []*tokenize.Sample) []*tokenize.Sample {
	for _, s := range all {
		s.Index, s.GroupSize = 0, 1
	}
	return all
}

// TestAppendBlocks tests that Append waits for the budget until its context ends. A sample that was
// refused can be appended again, and a dataset runs and closes once.
func TestAppendBlocks(t *testing.T) {
	t.Parallel()
	dir, all := t.TempDir(), samples(5)
	synctest.Test(t, func(t *testing.T) {
		d := open(t, dir, sink.Config{MaxBytesInFlight: 25_000}) // two samples of some 10 kB
		ctx, cancel := context.WithCancelCause(t.Context())
		var returned sync.WaitGroup
		errs := make(chan error, 5)
		for _, s := range all {
			returned.Go(func() { errs <- d.Append(ctx, s, func(error) { t.Error("done was called") }) })
		}
		synctest.Wait()
		if n := d.Stats().BytesInFlight; n < 15_000 || n > 25_000 {
			t.Errorf("%d bytes in flight, want the bytes of two samples", n)
		}
		gone := errors.New("gone")
		cancel(gone)
		returned.Wait()
		for range 5 {
			if err := <-errs; !errors.Is(err, gone) {
				t.Errorf("Append() = %v, want the cause", err)
			}
		}
		if n := d.Stats().BytesInFlight; n != 0 {
			t.Errorf("%d bytes in flight after all gave up", n)
		}
		wait := start(t.Context(), t, d)
		appendAll(t, d, all...)
		must(t, errors.Join(d.Close(t.Context()), wait(), d.Close(t.Context())))
		if err := d.Append(t.Context(), samples(6)[5], nil); !errors.Is(err, sink.ErrClosed) {
			t.Errorf("Append() = %v, want ErrClosed", err)
		}
		if err := d.Run(t.Context()); err == nil {
			t.Error("Run ran twice")
		}
	})
	// Outside the bubble, because objects in the decoders' pools must not leave it.
	compareDataset(t, dir, samples(5))
}

func TestConfig(t *testing.T) {
	t.Parallel()
	must(t, (sink.Config{}).Validate())
	bad := sink.Config{
		Format: 7, MaxShardBytes: -1, MaxShardAge: -1, MaxBytesInFlight: -1, RowGroupTokens: 3, VocabSize: -1,
		RunID: "a/b", Meta: map[string]string{"rollout.run_id": "x", "": "y"},
	}
	err := bad.Validate()
	for _, field := range []string{
		"format", "max_shard_bytes", "max_shard_age", "max_bytes_in_flight", "row_group_tokens", "vocab_size", "run_id", "meta: empty", "meta: the key rollout.run_id",
	} {
		if err == nil || !strings.Contains(err.Error(), "sink."+field) {
			t.Errorf("no complaint about %s in: %v", field, err)
		}
	}
	if _, err := sink.Create(t.TempDir(), bad); err == nil {
		t.Error("Create accepted it")
	}
	var f sink.Format
	if err := f.UnmarshalText([]byte("arrow")); err != nil || f != sink.Arrow {
		t.Errorf("UnmarshalText(arrow) = %v, %v", f, err)
	}
	if err := f.UnmarshalText([]byte("csv")); err == nil || !strings.Contains(err.Error(), "parquet") {
		t.Errorf("UnmarshalText(csv) = %v, want an error that names the formats", err)
	}
}

// TestAppendDoesNotWaitForWriter tests that Append accepts samples within the budget while a writer is
// busy. Another Append waits until the writer continues, or until Close or the end of Run's context wakes
// it. done is called for every accepted sample.
func TestAppendDoesNotWaitForWriter(t *testing.T) {
	t.Parallel()
	gone := errors.New("gone")
	for _, tt := range []struct {
		name          string
		waiting, done error // of the Append that waits, and of accepted samples
	}{{"drain", nil, nil}, {"close", sink.ErrClosed, nil}, {"stop", sink.ErrClosed, gone}} {
		dir := t.TempDir() // t.TempDir in the bubble would be removed at the bubble's end
		all := alone(samples(4))
		accepted := 3
		synctest.Test(t, func(t *testing.T) {
			may := make(chan struct{})
			stuck := hookFS{sink.OS(), func(op string, paths ...string) error {
				if op == "create" && filepath.Base(filepath.Dir(paths[0])) == "data" {
					<-may
				}
				return nil
			}}
			d := open(t, dir, sink.Config{FS: stuck, MaxBytesInFlight: 35_000}) // three samples of some 10 kB
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			wait := start(ctx, t, d)
			done, waiting := make(chan error, len(all)), make(chan error, 1)
			put := func(s *tokenize.Sample) error {
				return d.Append(t.Context(), s, func(err error) { done <- err })
			}
			for _, s := range all[:3] {
				must(t, put(s))
			}
			go func() { waiting <- put(all[3]) }()
			synctest.Wait()
			if s := d.Stats(); s.Pending != 3 || s.BytesInFlight > 35_000 || len(waiting) > 0 {
				t.Errorf("%d samples and %d bytes accepted, want 3 within the budget", s.Pending, s.BytesInFlight)
			}
			var closing sync.WaitGroup
			switch tt.name {
			case "close":
				closing.Go(func() { _ = d.Close(t.Context()) }) // the next Close returns the same
				synctest.Wait()
				if len(waiting) != 1 {
					t.Error("Append still waits after Close")
				}
			case "stop":
				cancel(gone)
				synctest.Wait()
			}
			close(may)
			if err := <-waiting; !errors.Is(err, tt.waiting) {
				t.Errorf("%s: Append() = %v, want %v", tt.name, err, tt.waiting)
			} else if err == nil {
				accepted = 4
			}
			closing.Wait()
			if err := errors.Join(d.Close(t.Context()), wait()); !errors.Is(err, tt.done) {
				t.Errorf("%s: Close and Run: %v, want %v", tt.name, err, tt.done)
			}
			for range accepted {
				if err := <-done; !errors.Is(err, tt.done) {
					t.Errorf("%s: done(%v), want %v", tt.name, err, tt.done)
				}
			}
			if n := d.Stats().Pending; n != 0 || len(done) > 0 {
				t.Errorf("%s: %d samples pending, done was called %d times too often", tt.name, n, len(done))
			}
		})
		if tt.done == nil {
			// Outside the bubble, because objects in the decoders' pools must not leave it.
			compareDataset(t, dir, alone(samples(4))[:accepted])
		}
	}
}
