package sink_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/frame"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/tokenize"
)

// walSync calls sync before each sync of the write-ahead log.
func walSync(fs sink.FS, sync func() error) sink.FS {
	return hookFS{fs, func(op string, paths ...string) error {
		if op == "sync" && strings.HasSuffix(paths[0], ".wal") {
			return sync()
		}
		return nil
	}}
}

// TestGroupCommit tests that a sample after a pause is synced at once, and that at most one sync begins
// in 20 ms. No sample waits longer than that plus the sync.
func TestGroupCommit(t *testing.T) {
	t.Parallel()
	for _, took := range []time.Duration{0, 3 * time.Millisecond, 15 * time.Millisecond} {
		t.Run(took.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var syncs []time.Time // begin of each
				fs := walSync(newPowerCut("run", 0), func() error {
					mu.Lock()
					syncs = append(syncs, time.Now())
					mu.Unlock()
					time.Sleep(took)
					return nil
				})
				var told int
				d, err := sink.Create("run", sink.Config{FS: fs, Events: sink.Events{Synced: func(d time.Duration, n int, bytes int64) {
					told += n
					if d != took || bytes < int64(n)*100 {
						t.Errorf("Synced(%v, %d, %d), want %v and the size of the samples", d, n, bytes, took)
					}
				}}})
				must(t, err)
				wait := start(t.Context(), t, d)
				time.Sleep(time.Second)
				all := samples(400)
				one := func(s *tokenize.Sample) time.Duration {
					began := time.Now()
					if err := d.Append(t.Context(), s, func(error) {}); err != nil {
						t.Error(err)
					}
					return time.Since(began)
				}
				if waited := one(all[0]); waited != took {
					t.Errorf("a lone sample waited %v, want one sync, %v", waited, took)
				}
				time.Sleep(100 * time.Millisecond)
				var feed sync.WaitGroup
				for i, s := range all[1:] {
					feed.Go(func() {
						time.Sleep(time.Duration(i) * 1700 * time.Microsecond)
						if waited := one(s); waited > 20*time.Millisecond+took {
							t.Errorf("sample %d waited %v, want ≤ 20 ms and a sync", i, waited)
						}
					})
				}
				feed.Wait()
				must(t, errors.Join(d.Close(t.Context()), wait()))
				for i := 1; i < len(syncs); i++ {
					if gap := syncs[i].Sub(syncs[i-1]); gap < 20*time.Millisecond {
						t.Errorf("sync %d begins %v after the one before", i, gap)
					}
				}
				if s := d.Stats(); s.WALSyncs != int64(len(syncs)) || told != len(all) || s.WALBytes != 0 {
					t.Errorf("%d syncs, Stats %+v, Synced reported %d samples", len(syncs), s, told)
				}
				if n, most := len(syncs), 400*17/200+3; n > most {
					t.Errorf("%d syncs of 400 samples, want ≤ %d", n, most)
				}
			})
		})
	}
}

// TestFailedSync tests that a failed sync ends the run without a retry or a durable sample.
func TestFailedSync(t *testing.T) {
	t.Parallel()
	disk := newPowerCut("run", 0)
	n := 0
	fs := walSync(disk, func() error {
		if n++; n > 1 {
			return syscall.EIO
		}
		return nil
	})
	d := open(t, "run", sink.Config{FS: fs})
	wait := start(t.Context(), t, d)
	all := samples(9)
	must(t, d.Append(t.Context(), all[0], func(error) {}))
	var feed sync.WaitGroup
	for _, s := range all[1:8] {
		feed.Go(func() {
			err := d.Append(t.Context(), s, func(error) { t.Error("done was called") })
			if !errors.Is(err, syscall.EIO) {
				t.Errorf("Append() = %v, want the disk's error", err)
			}
		})
	}
	feed.Wait()
	if err := wait(); !errors.Is(err, syscall.EIO) {
		t.Errorf("Run() = %v, want the disk's error", err)
	}
	if err := d.Append(t.Context(), all[8], nil); !errors.Is(err, sink.ErrClosed) || !errors.Is(err, syscall.EIO) {
		t.Errorf("Append() = %v, want ErrClosed and the cause", err)
	}
	if n != 2 {
		t.Errorf("%d syncs after the one that failed", n-2)
	}
}

// interrupted returns a folder as left by a process that was killed after it had reported the samples
// durable, with a shard that holds some of them.
func interrupted(t *testing.T, all []*tokenize.Sample, cfg sink.Config) (dir string) {
	t.Helper()
	dir = t.TempDir()
	interruptedIn(t, dir, all, cfg)
	return dir
}

// interruptedIn is interrupted in a folder that can hold commits.
func interruptedIn(t *testing.T, dir string, all []*tokenize.Sample, cfg sink.Config) {
	t.Helper()
	d := open(t, dir, cfg)
	d.SetSyncEvery(0)
	killed := errors.New("killed")
	ctx, kill := context.WithCancelCause(t.Context())
	wait := start(ctx, t, d)
	appendAll(t, d, all...)
	kill(killed)
	if err := wait(); !errors.Is(err, killed) {
		t.Errorf("Run() = %v, want the cause", err)
	}
}

// interruptedLog is interrupted for n samples. It returns the only segment and its content too.
func interruptedLog(t *testing.T, n int) (dir, segment string, body []byte) {
	t.Helper()
	dir = interrupted(t, samples(n), sink.Config{})
	segment = segments(t, dir)[0]
	return dir, segment, readFile(t, segment)
}

func segments(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "wal", "*.wal"))
	must(t, err)
	return names
}

// TestRecover tests that Create commits what an ended run had not, and only once, even if the removal of
// the segment was not durable.
func TestRecover(t *testing.T) {
	t.Parallel()
	for _, format := range []sink.Format{sink.Parquet, sink.Arrow} {
		b := sinktest.NewBuilder(9)
		all := append(samples(5), b.Failure(4), b.Sample())
		dir := interrupted(t, all, sink.Config{Format: format})
		segment := segments(t, dir)[0]
		body := readFile(t, segment)
		for path, body := range map[string]string{
			"data/.tmp-x.parquet": "half", "_commits/.tmp-y.json": "{", "wal/.tmp-z.wal": "",
			"data/part-run-0-9-00000000.parquet": "no entry names it", "failures/part-run-0-9-00000000.parquet": "nor this",
			"data/notes.txt": "of somebody else",
		} {
			must(t, os.WriteFile(filepath.Join(dir, path), []byte(body), 0o666))
		}
		report := wholeVerify(t, dir)
		if report.WAL.Pending != int64(len(all)) || report.Samples != 0 {
			t.Errorf("Verify before: %+v", report.WAL)
		}
		d := open(t, dir, sink.Config{Format: format})
		got := d.Recovered()
		slices.Sort(got.Orphans)
		want := sink.Recovery{
			Temporaries: 3, Segments: 1, Replayed: int64(len(all)), Commits: 1,
			Orphans: []string{"orphans/data-part-run-0-9-00000000.parquet", "orphans/failures-part-run-0-9-00000000.parquet"},
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("Recovered() = %+v, want %+v", got, want)
		}
		if s := d.Stats(); s != (sink.Stats{}) {
			t.Errorf("Stats() = %+v, want nothing: it was an earlier process", s)
		}
		if err := d.Append(t.Context(), samples(1)[0], nil); !errors.Is(err, sink.ErrCommitted) {
			t.Errorf("Append of a sample that was replayed = %v, want ErrCommitted", err)
		}
		for _, orphan := range want.Orphans {
			if _, err := os.Stat(filepath.Join(dir, orphan)); err != nil {
				t.Error(err)
			}
		}
		if d = open(t, dir, sink.Config{Format: format}); fmt.Sprint(d.Recovered()) != fmt.Sprint(sink.Recovery{}) {
			t.Errorf("Recovered() of the next = %+v, want nothing", d.Recovered())
		}
		must(t, os.WriteFile(segment, body, 0o666))
		if r := wholeVerify(t, dir).WAL; r != (sink.WALReport{Segments: 1}) {
			t.Errorf("Verify: %+v, want a segment with nothing pending", r)
		}
		d = open(t, dir, sink.Config{Format: format})
		if r := d.Recovered(); r.Known != int64(len(all)) || r.Replayed != 0 || len(segments(t, dir)) > 0 {
			t.Errorf("Recovered() of the segment that came back = %+v", r)
		}
		b = sinktest.NewBuilder(9)
		compareDataset(t, dir, append(samples(5), b.Failure(4), b.Sample()))
		log := readLog(t, dir)
		if len(log.Commits) != 1 {
			t.Fatalf("%d commits, want 1", len(log.Commits))
		}
		for _, s := range log.Commits[0].Samples {
			if want := map[bool]string{true: "model_output"}[s.Key == all[5].Key]; s.Class != want {
				t.Errorf("class of %+v, want %q", s, want)
			}
		}
	}
}

// TestRepair tests that a torn end is dropped, and that damage to durable data is refused with its
// place and repaired on request.
func TestRepair(t *testing.T) {
	t.Parallel()
	dir, segment, body := interruptedLog(t, 4)
	body[frame.HeaderSize+20_000] ^= 4                       // in the second or third frame
	body = append(body, "\xffRL\xfe\x00\x01\x00\x00half"...) // and the last one is torn
	must(t, os.WriteFile(segment, body, 0o666))
	_, err := sink.Create(dir, sink.Config{})
	damage, ok := errors.AsType[*frame.CorruptError](err)
	if !ok || !errors.Is(err, sink.ErrCorrupt) {
		t.Fatalf("Create() = %v, want a *frame.CorruptError", err)
	}
	for _, part := range []string{"wal/00000001.wal", fmt.Sprintf("offset %d", damage.Offset)} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not contain %q", err, part)
		}
	}
	report, err := sink.Verify(t.Context(), dir, sink.VerifyOptions{})
	if err != nil || report.ProblemCount != 1 || report.WAL.Pending != 3 || report.WAL.TornBytes != 12 {
		t.Errorf("Verify: %v, %v, %+v", err, report.Problems, report.WAL)
	}

	plan, err := sink.PlanRepair(nil, dir)
	if err != nil || len(plan.Segments) != 1 {
		t.Fatalf("PlanRepair: %+v, %v", plan, err)
	}
	s := plan.Segments[0]
	if s.Path != "wal/00000001.wal" || s.Aside != "orphans/wal-00000001.wal" || s.Samples != 3 || len(s.Damage) != 1 ||
		s.Damage[0].Offset != damage.Offset || s.LostBytes != damage.Bytes {
		t.Errorf("the plan is %+v", s)
	}
	if again, err := os.ReadFile(segment); err != nil || !slices.Equal(again, body) {
		t.Errorf("the plan changed the segment: %v", err)
	}
	must(t, plan.Apply())
	if kept, err := os.ReadFile(filepath.Join(dir, s.Aside)); err != nil || !slices.Equal(kept, body) {
		t.Errorf("the damaged segment was not kept: %v", err)
	}
	if plan, err := sink.PlanRepair(nil, dir); err != nil || len(plan.Segments) > 0 {
		t.Errorf("after the repair there is to do: %+v, %v", plan, err)
	}
	if r := open(t, dir, sink.Config{}).Recovered(); r.Replayed != 3 || len(segments(t, dir)) > 0 {
		t.Errorf("Create after the repair: %+v", r)
	}
	if report = wholeVerify(t, dir); report.Samples != 3 {
		t.Errorf("%d samples, want 3", report.Samples)
	}
}

// TestTornBeforeTheLast tests that a torn end of an earlier segment is damage, and so is a clean but
// earlier end: each segment is synced to its last mark before the next one begins.
func TestTornBeforeTheLast(t *testing.T) {
	t.Parallel()
	dir, segment, body := interruptedLog(t, 2)
	next := filepath.Join(dir, "wal", "00000002.wal")
	must(t, os.WriteFile(next, renumbered(body, 2), 0o666))
	wholeVerify(t, dir) // of two whole segments
	for _, cut := range []int{0, frame.HeaderSize, len(body) - frame.Overhead - 1, len(body) - frame.Overhead, len(body) - 1} {
		must(t, os.WriteFile(segment, body[:cut], 0o666))
		_, err := sink.Create(dir, sink.Config{})
		if !errors.Is(err, sink.ErrCorrupt) || !strings.Contains(err.Error(), "a later segment exists") || !strings.Contains(err.Error(), "wal/00000001.wal") {
			t.Errorf("cut at %d of %d: Create() = %v, want ErrCorrupt", cut, len(body), err)
		}
	}
	must(t, os.WriteFile(segment, body[:len(body)-frame.Overhead-1], 0o666))
	must(t, os.Remove(next))
	if r := open(t, dir, sink.Config{}).Recovered(); r.Replayed != 1 || r.TornBytes == 0 {
		t.Errorf("Recovered() = %+v", r)
	}
}

// renumbered returns a segment as if it had been written under another number.
func renumbered(body []byte, n uint64) []byte {
	body = bytes.Clone(body)
	binary.LittleEndian.PutUint64(body[20:], n)
	binary.LittleEndian.PutUint32(body[28:], crc32.Checksum(body[:28], crc32.MakeTable(crc32.Castagnoli)))
	return body
}

// TestLastFramesAreVouchedFor tests that a mark follows every sample that a killed process reported
// durable. A changed bit is reported wherever it is, and no such sample is silently dropped.
func TestLastFramesAreVouchedFor(t *testing.T) {
	t.Parallel()
	dir, segment, body := interruptedLog(t, 3)
	for bit := 0; bit < 8*len(body); bit += 8*37 + 5 {
		flipped := bytes.Clone(body)
		flipped[bit/8] ^= 1 << (bit % 8)
		must(t, os.WriteFile(segment, flipped, 0o666))
		if _, err := sink.Create(dir, sink.Config{}); !errors.Is(err, sink.ErrCorrupt) {
			t.Fatalf("bit %d of %d: Create() = %v, want ErrCorrupt", bit, 8*len(body), err)
		}
	}
}

// TestSegmentUnderAnotherName tests that a renamed segment is reported, and repair keeps its samples.
func TestSegmentUnderAnotherName(t *testing.T) {
	t.Parallel()
	dir, segment, _ := interruptedLog(t, 3)
	must(t, os.Rename(segment, filepath.Join(dir, "wal", "00000005.wal")))
	if _, err := sink.Create(dir, sink.Config{}); !errors.Is(err, sink.ErrCorrupt) || !strings.Contains(err.Error(), "the header has number 1") {
		t.Fatalf("Create() = %v", err)
	}
	plan, err := sink.PlanRepair(nil, dir)
	must(t, err)
	must(t, plan.Apply())
	if r := open(t, dir, sink.Config{}).Recovered(); r.Replayed != 3 {
		t.Errorf("Recovered() = %+v", r)
	}
}

// TestSegmentsAreDeleted tests that segments are deleted with commits, down to about the open shard.
func TestSegmentsAreDeleted(t *testing.T) {
	t.Parallel()
	var most int64
	var d *sink.Dataset
	cfg := sink.Config{MaxShardBytes: 20_000, RowGroupTokens: 2000, MaxBytesInFlight: 30_000, Events: sink.Events{
		Committed: func(sink.Commit) { most = max(most, d.Stats().WALBytes) },
	}}
	dir := t.TempDir()
	d = open(t, dir, cfg)
	d.SetSyncEvery(0)
	wait := start(t.Context(), t, d)
	appendAll(t, d, samples(200)...)
	must(t, errors.Join(d.Close(t.Context()), wait()))
	if n := d.Stats().Commits; n < 20 {
		t.Errorf("%d commits, want many", n)
	}
	if names := segments(t, dir); len(names) > 0 {
		t.Errorf("left behind: %q", names)
	}
	t.Logf("at most %d bytes after a commit", most)
	if most > 200_000 { // of 1.6 MB in total
		t.Errorf("the log held %d bytes after a commit", most)
	}
}
