package sink_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/tokenize"
)

func faultSamples() (lines [3][]*tokenize.Sample) {
	b := sinktest.NewBuilder(2)
	both := b.Failure(10)
	both.Status, both.Rows = "completed", []tokenize.Row{b.Row(5, 6)}
	both.Rows[0].SegmentCount = 1
	lines[0] = []*tokenize.Sample{
		b.Sample(b.Row(300, 200), b.Row(500, 100, 5, 1)), both, b.Sample(), b.Failure(7), b.Sample(b.Row(30, 900)),
	}
	return lines
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
				_, err := live(t, probe, cfg, faultSamples(), map[attemptID]bool{})
				must(t, err)
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
	disk := newPowerCut("run", 0) // without a power failure
	faults := faulty(disk, at, syscall.ENOSPC)
	faults.dead = dead
	durable, lines := map[attemptID]bool{}, faultSamples()
	done, err := live(t, faults, cfg, lines, durable)
	if ops := faults.Ops(); at < len(ops) {
		op = ops[at] // the order of the write-ahead log and the writer varies
	}
	if err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("error %v does not wrap its cause", err)
	}

	// Check the disk as the next process finds it.
	dir := dump(t, disk)
	_, _, keys := readDataset(t, readLog(t, dir))
	for id, err := range done {
		if err == nil && keys[id.key] != 1 {
			t.Errorf("%v was reported as committed and is %d times in the log", id, keys[id.key])
		}
	}
	cardNames(t, dir, false)
	for _, name := range wholeVerify(t, dir).Orphans {
		if !dead && op != "remove" && strings.HasPrefix(filepath.Base(name), ".tmp-") {
			t.Errorf("left behind by a process that could have removed it: %s", name)
		}
	}
	goOn(t, disk, cfg, lines, durable)
	compareDataset(t, dump(t, disk), faultSamples()[0])
}

func dump(t *testing.T, disk *powerCut) string {
	t.Helper()
	dir := t.TempDir()
	must(t, disk.Dump(dir))
	return dir
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

func TestWithoutFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "none")
	_, createErr := sink.Create(dir, sink.Config{})
	_, verifyErr := sink.Verify(t.Context(), dir, sink.VerifyOptions{})
	for _, err := range []error{createErr, verifyErr} {
		if !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%v, want os.ErrNotExist", err)
		}
	}
}
