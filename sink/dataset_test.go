package sink_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
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

func sample() *tokenize.Sample { return samples(1)[0] }

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

func TestAppendBlocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, _ := create(t, sink.Config{MaxBytesInFlight: 25_000}) // two samples of some 10 kB
		ctx, cancel := context.WithCancelCause(t.Context())
		var returned sync.WaitGroup
		errs := make(chan error, 5)
		for _, s := range samples(5) {
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
	})
}

// TestLargeSample tests that a sample above the budget passes alone, and that a refused one can retry.
func TestLargeSample(t *testing.T) {
	t.Parallel()
	d, dir := create(t, sink.Config{MaxBytesInFlight: 1})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	all := samples(5)
	for _, s := range all {
		if err := d.Append(gone, s, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("Append() = %v, want context.Canceled", err)
		}
	}
	wait := start(t.Context(), t, d)
	for _, s := range all {
		must(t, d.Append(t.Context(), s, func(error) {}))
	}
	must(t, errors.Join(d.Close(t.Context()), wait()))
	compareDataset(t, dir, samples(5))
}

// TestStopNow tests that ending Run's context abandons open shards, and that ending Close's does not.
func TestStopNow(t *testing.T) {
	t.Parallel()
	d, dir := create(t, sink.Config{})
	ctx, cancel := context.WithCancelCause(t.Context())
	wait := start(ctx, t, d)
	done := make(chan error, 1)
	must(t, d.Append(t.Context(), sample(), func(err error) { done <- err }))
	stop := errors.New("stop")
	cancel(stop)
	if err := <-done; !errors.Is(err, stop) {
		t.Errorf("done(%v), want the cause", err)
	}
	if err := wait(); !errors.Is(err, stop) {
		t.Errorf("Run() = %v, want the cause", err)
	}
	if err := d.Close(t.Context()); !errors.Is(err, stop) {
		t.Errorf("Close() = %v, want Run's error", err)
	}
	if err := d.Append(t.Context(), samples(2)[1], nil); !errors.Is(err, sink.ErrClosed) || !errors.Is(err, stop) {
		t.Errorf("Append() = %v, want ErrClosed and the cause", err)
	}
	compareDataset(t, dir, nil)
	report, err := sink.Verify(t.Context(), dir, sink.VerifyOptions{})
	if err != nil || len(report.Orphans) > 0 {
		t.Errorf("Verify: %v, orphans %q", err, report.Orphans)
	}
}

func TestClosed(t *testing.T) {
	t.Parallel()
	d, dir := create(t, sink.Config{})
	wait := start(t.Context(), t, d)
	for _, s := range samples(2) {
		must(t, d.Append(t.Context(), s, func(err error) {
			if err != nil {
				t.Error(err)
			}
		}))
	}
	for range 2 { // it can be called again
		must(t, d.Close(t.Context()))
	}
	must(t, wait())
	if err := d.Append(t.Context(), samples(3)[2], nil); !errors.Is(err, sink.ErrClosed) {
		t.Errorf("Append() = %v, want ErrClosed", err)
	}
	if err := d.Run(t.Context()); err == nil {
		t.Error("Run ran twice")
	}
	compareDataset(t, dir, samples(2))
}

// TestShardNumbers tests that shard numbers are unique over processes: digests alone can collide.
func TestShardNumbers(t *testing.T) {
	t.Parallel()
	b := sinktest.NewBuilder(5)
	dir := interrupted(t, []*tokenize.Sample{b.Sample(b.Row(3, 4))}, sink.Config{})
	for range 3 { // the first one recovers
		sinktest.Write(t, dir, sink.Config{}, []*tokenize.Sample{b.Sample(b.Row(5, 6))})
	}
	log := readLog(t, dir)
	var numbers []string
	for s := range log.Shards(sink.KindData) {
		numbers = append(numbers, s.Path[:strings.LastIndexByte(s.Path, '-')])
	}
	want := []string{"data/part-run-0-0", "data/part-run-0-1", "data/part-run-0-2", "data/part-run-0-3"}
	if !slices.Equal(numbers, want) {
		t.Errorf("shards are %q, want %q", numbers, want)
	}
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
		"format", "max_shard_bytes", "max_shard_age", "max_bytes_in_flight", "row_group_tokens", "vocab_size", "run_id", "meta: empty", "meta: rollout.run_id",
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

// stuckFS blocks the creation of shards until may allows it.
func stuckFS(may chan struct{}) sink.FS {
	return hookFS{sink.OS(), func(op string, paths ...string) error {
		if op == "create" && filepath.Base(filepath.Dir(paths[0])) == "data" {
			<-may
		}
		return nil
	}}
}

// TestCloseWakesAppend tests that Close wakes an Append that waits for the budget.
func TestCloseWakesAppend(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() // t.TempDir in the bubble would be removed at the bubble's end
	synctest.Test(t, func(t *testing.T) {
		may := make(chan struct{})
		d, err := sink.Create(dir, sink.Config{FS: stuckFS(may), MaxBytesInFlight: 1}) // each sample passes alone
		must(t, err)
		wait := start(t.Context(), t, d)
		all := alone(samples(2))
		committed := make(chan error, 1)
		must(t, d.Append(t.Context(), all[0], func(err error) { committed <- err }))
		refused := make(chan error, 1)
		go func() {
			refused <- d.Append(t.Context(), all[1], func(error) { t.Error("done of a sample that was refused") })
		}()
		synctest.Wait()
		if len(refused) > 0 {
			t.Fatalf("Append() = %v beside a sample that takes all of the budget", <-refused)
		}
		closed := make(chan error, 1)
		go func() { closed <- d.Close(t.Context()) }()
		synctest.Wait()
		if len(refused) != 1 {
			t.Fatal("Append still waits")
		}
		if err := <-refused; !errors.Is(err, sink.ErrClosed) {
			t.Errorf("Append() = %v, want %v", err, sink.ErrClosed)
		}
		close(may)
		must(t, errors.Join(<-committed, <-closed, wait()))
	})
}

// TestAppendDoesNotWaitForWriter tests that Append accepts samples within the budget while a writer is
// busy, and that done is called for the samples left when Run's context ends.
func TestAppendDoesNotWaitForWriter(t *testing.T) {
	t.Parallel()
	for _, drain := range []bool{true, false} {
		dir := t.TempDir() // t.TempDir in the bubble would be removed at the bubble's end
		synctest.Test(t, func(t *testing.T) {
			may := make(chan struct{})
			d, err := sink.Create(dir, sink.Config{FS: stuckFS(may), MaxBytesInFlight: 35_000}) // three samples of some 10 kB
			must(t, err)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			wait := start(ctx, t, d)
			all := alone(samples(4))
			done := make(chan error, len(all))
			for _, s := range all[:3] {
				must(t, d.Append(t.Context(), s, func(err error) { done <- err }))
			}
			var returned sync.WaitGroup
			returned.Go(func() {
				err := d.Append(t.Context(), all[3], func(err error) { done <- err })
				if stopped := errors.Is(err, sink.ErrClosed); !drain && !stopped || drain && err != nil {
					t.Errorf("Append() = %v", err)
				}
			})
			synctest.Wait()
			if s := d.Stats(); s.Pending != 3 || s.BytesInFlight > 35_000 {
				t.Errorf("%d samples and %d bytes accepted, want 3 within the budget", s.Pending, s.BytesInFlight)
			}
			if drain {
				close(may)
				returned.Wait()
				must(t, errors.Join(d.Close(t.Context()), wait()))
				for range 4 {
					if err := <-done; err != nil {
						t.Errorf("done(%v)", err)
					}
				}
				return
			}
			gone := errors.New("gone")
			cancel(gone)
			synctest.Wait()
			close(may)
			if err := wait(); !errors.Is(err, gone) {
				t.Errorf("Run() = %v, want the cause", err)
			}
			returned.Wait()
			for range 3 {
				if err := <-done; !errors.Is(err, gone) {
					t.Errorf("done(%v), want the cause", err)
				}
			}
			if n := d.Stats().Pending; n != 0 {
				t.Errorf("%d samples pending", n)
			}
		})
		if drain {
			// Outside the bubble, because objects in the decoders' pools must not leave it.
			compareDataset(t, dir, alone(samples(4)))
		}
	}
}
