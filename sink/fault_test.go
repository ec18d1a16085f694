package sink_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/tokenize"
)

// An outcome is what a process learned about its samples before it ended.
type outcome struct {
	durable map[string]bool  // Append returned nil
	done    map[string]error // argument of done
	err     error            // first error of Create, Append and Close
}

// attempt writes samples one by one until something fails.
func attempt(t *testing.T, dir string, cfg sink.Config, samples []*tokenize.Sample) outcome {
	t.Helper()
	o := outcome{durable: map[string]bool{}, done: map[string]error{}}
	d, err := sink.Create(dir, cfg)
	if err != nil {
		o.err = err
		return o
	}
	d.SetSyncEvery(0)
	var run sync.WaitGroup
	var runErr error
	run.Go(func() { runErr = d.Run(t.Context()) })
	var mu sync.Mutex
	for _, s := range samples {
		key := s.Key
		err := d.Append(t.Context(), s, func(err error) {
			mu.Lock()
			defer mu.Unlock()
			if _, again := o.done[key]; again {
				t.Errorf("done of %s was called twice", key)
			}
			o.done[key] = err
		})
		if err != nil {
			o.err = err
			break
		}
		o.durable[key] = true
	}
	closeErr := d.Close(context.Background())
	run.Wait()
	if !errors.Is(closeErr, runErr) {
		t.Errorf("Close() = %v, Run() = %v", closeErr, runErr)
	}
	if o.err == nil {
		o.err = closeErr
	}
	for key := range o.durable {
		if _, ok := o.done[key]; !ok {
			t.Errorf("done of %s was not called", key)
		}
	}
	if s := d.Stats(); s.BytesInFlight != 0 || s.Pending != 0 {
		t.Errorf("%d bytes in flight, %d samples pending at the end", s.BytesInFlight, s.Pending)
	}
	return o
}

func faultSamples() []*tokenize.Sample {
	b := sinktest.NewBuilder(2)
	both := b.Failure(10)
	both.Status, both.Rows = "completed", []tokenize.Row{b.Row(5, 6)}
	both.Rows[0].SegmentCount = 1
	return []*tokenize.Sample{
		b.Sample(b.Row(300, 200), b.Row(500, 100, 5, 1)), both, b.Sample(), b.Failure(7), b.Sample(b.Row(30, 900)),
	}
}

// TestFaults fails each single operation, once with a temporary error and once by killing the process.
// The log stays consistent, holds all samples reported committed, and a second run completes it.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, format := range []sink.Format{sink.Parquet, sink.Arrow} {
		for _, dead := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/dead=%t", format, dead), func(t *testing.T) {
				t.Parallel()
				// Two commits, because the second sample reaches the byte limit.
				cfg := sink.Config{Format: format, MaxShardBytes: 5000}
				probe := faulty(newPowerCut("run", 0), -1, nil)
				cfg.FS = probe
				if o := attempt(t, "run", cfg, faultSamples()); o.err != nil {
					t.Fatal(o.err)
				}
				ops := probe.Ops()
				if len(ops) < 40 {
					t.Fatalf("only %d operations: %q", len(ops), ops)
				}
				for at, op := range ops {
					t.Run(fmt.Sprintf("%d-%s", at, op), func(t *testing.T) {
						testFault(t, cfg, at, op, dead)
					})
				}
			})
		}
	}
}

func testFault(t *testing.T, cfg sink.Config, at int, op string, dead bool) {
	t.Helper()
	disk := newPowerCut("run", 0) // without a power cut
	faults := faulty(disk, at, syscall.ENOSPC)
	faults.dead = dead
	cfg.FS = faults
	o := attempt(t, "run", cfg, faultSamples())
	if ops := faults.Ops(); at < len(ops) {
		op = ops[at] // the order of the write-ahead log and the writer varies
	}
	if o.err != nil && !errors.Is(o.err, syscall.ENOSPC) {
		t.Errorf("error %v does not wrap its cause", o.err)
	}

	// Check the disk as the next process finds it.
	dir := dump(t, disk)
	_, _, keys := readDataset(t, dir)
	for key, err := range o.done {
		if err == nil && keys[key] != 1 {
			t.Errorf("sample %s was reported as committed and is %d times in the log", key, keys[key])
		}
	}
	cardNames(t, dir, false)
	report := wholeVerify(t, dir)
	for _, name := range report.Orphans {
		if !dead && op != "remove" && strings.HasPrefix(filepath.Base(name), ".tmp-") {
			t.Errorf("left behind by a process that could have removed it: %s", name)
		}
	}
	cfg.FS = disk
	completed(t, disk, cfg, o)
}

func dump(t *testing.T, disk *powerCut) string {
	t.Helper()
	dir := t.TempDir()
	must(t, disk.Dump(dir))
	return dir
}

// completed opens the dataset again, checks that it has all durable samples, and writes the rest.
func completed(t *testing.T, disk *powerCut, cfg sink.Config, o outcome) {
	t.Helper()
	if _, err := sink.Create("run", cfg); err != nil {
		t.Fatalf("the next process: %v", err)
	}
	dir := dump(t, disk)
	_, _, keys := readDataset(t, dir)
	for key := range o.durable {
		if keys[key] != 1 {
			t.Errorf("sample %s was durable and is %d times in the log", key, keys[key])
		}
	}
	var committed, missing []*tokenize.Sample
	for _, s := range faultSamples() {
		if keys[s.Key] > 0 {
			committed = append(committed, s)
		} else {
			missing = append(missing, s)
		}
	}
	compareDataset(t, dir, committed)
	if o := attempt(t, "run", cfg, missing); o.err != nil {
		t.Errorf("second run: %v", o.err)
	}
	dir = dump(t, disk)
	cardNames(t, dir, true)
	compareDataset(t, dir, faultSamples())
	verify(t, dir)
}

func TestErrorKinds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err    error
		target error
		want   bool
	}{
		{syscall.ENOSPC, sink.ErrFull, true},
		{syscall.EDQUOT, sink.ErrFull, true},
		{syscall.EACCES, sink.ErrFull, false},
		{syscall.EACCES, sink.ErrPermission, true},
		{syscall.EROFS, sink.ErrPermission, true},
		{syscall.EIO, sink.ErrPermission, false},
		{fs.ErrNotExist, fs.ErrNotExist, true},
	} {
		cfg := sink.Config{FS: faulty(sink.OS(), 0, &fs.PathError{Op: "open", Path: "x", Err: tt.err})}
		_, err := sink.Create(t.TempDir(), cfg)
		if _, ok := errors.AsType[*sink.ShardError](err); !ok {
			t.Errorf("Create() = %v, want a *ShardError", err)
		}
		if got := errors.Is(err, tt.target); got != tt.want {
			t.Errorf("errors.Is(%v, %v) = %t, want %t", err, tt.target, got, tt.want)
		}
	}
}

// TestErrorText tests that an error names the file, the operation and the cause once each.
func TestErrorText(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  sink.ShardError
		want string
	}{
		{sink.ShardError{Path: "run/wal/00000001.wal", Op: "sync", Err: syscall.EIO}, "run/wal/00000001.wal: sync: input/output error"},
		{sink.ShardError{Path: "run/data/x", Op: "create", Err: &fs.PathError{Op: "open", Path: "run/data/x", Err: syscall.EACCES}}, "run/data/x: create: permission denied"},
		{sink.ShardError{Path: "run", Op: "create", Err: &fs.PathError{Op: "mkdir", Path: "run/wal", Err: syscall.EACCES}}, "run: create: mkdir run/wal: permission denied"},
	} {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("Error() = %q, want %q", got, tt.want)
		}
	}
}

func TestCreateWithoutFolder(t *testing.T) {
	t.Parallel()
	if _, err := sink.Create(filepath.Join(t.TempDir(), "none"), sink.Config{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Create() = %v, want os.ErrNotExist", err)
	}
}
