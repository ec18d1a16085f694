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

// slowSync is a file system whose syncs of the write-ahead log take a while and are recorded.
type slowSync struct {
	sink.FS
	took  time.Duration
	mu    sync.Mutex
	began []time.Time
}

type slowFile struct {
	sink.File
	fs *slowSync
}

func (s *slowSync) Create(name string) (sink.File, error) {
	f, err := s.FS.Create(name)
	if err != nil || !strings.HasSuffix(name, ".wal") {
		return f, err
	}
	return slowFile{f, s}, nil
}

func (f slowFile) Sync() error {
	f.fs.mu.Lock()
	f.fs.began = append(f.fs.began, time.Now())
	f.fs.mu.Unlock()
	time.Sleep(f.fs.took)
	return f.File.Sync()
}

// TestGroupCommit tests that a sample after a pause is synced at once, and that at most one sync begins
// in 20 ms. No sample waits longer than that plus the sync.
func TestGroupCommit(t *testing.T) {
	t.Parallel()
	for _, took := range []time.Duration{0, 3 * time.Millisecond, 15 * time.Millisecond} {
		t.Run(took.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				fs := &slowSync{FS: newPowerCut("run", 0), took: took}
				var told int
				d, err := sink.Create("run", sink.Config{FS: fs, Events: sink.Events{Synced: func(d time.Duration, n int, bytes int64) {
					told += n
					if d != took || bytes < int64(n)*100 {
						t.Errorf("Synced(%v, %d, %d), want %v and the size of the samples", d, n, bytes, took)
					}
				}}})
				if err != nil {
					t.Fatal(err)
				}
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
				if took := one(all[0]); took != fs.took {
					t.Errorf("a lone sample waited %v, want one sync, %v", took, fs.took)
				}
				time.Sleep(100 * time.Millisecond)
				var feed sync.WaitGroup
				for i, s := range all[1:] {
					feed.Go(func() {
						time.Sleep(time.Duration(i) * 1700 * time.Microsecond)
						if took := one(s); took > 20*time.Millisecond+fs.took {
							t.Errorf("sample %d waited %v, want ≤ 20 ms and a sync", i, took)
						}
					})
				}
				feed.Wait()
				if err := d.Close(t.Context()); err != nil {
					t.Error(err)
				}
				if err := wait(); err != nil {
					t.Error(err)
				}
				for i := 1; i < len(fs.began); i++ {
					if gap := fs.began[i].Sub(fs.began[i-1]); gap < 20*time.Millisecond {
						t.Errorf("sync %d begins %v after the one before", i, gap)
					}
				}
				if s := d.Stats(); s.WALSyncs != int64(len(fs.began)) || told != len(all) || s.WALBytes != 0 {
					t.Errorf("%d syncs, Stats %+v, Synced reported %d samples", len(fs.began), s, told)
				}
				if n, most := len(fs.began), 400*17/200+3; n > most {
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
	fs := &failingSync{FS: disk, ok: 1}
	d, err := sink.Create("run", sink.Config{FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	wait := start(t.Context(), t, d)
	all := samples(9)
	if err := d.Append(t.Context(), all[0], func(error) {}); err != nil {
		t.Fatal(err)
	}
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
	if fs.failed != 1 {
		t.Errorf("%d syncs after the one that failed", fs.failed-1)
	}
}

// failingSync fails the syncs of the write-ahead log after the first ok ones.
type failingSync struct {
	sink.FS
	ok, failed int
}

func (f *failingSync) Create(name string) (sink.File, error) {
	file, err := f.FS.Create(name)
	if err != nil || !strings.HasSuffix(name, ".wal") {
		return file, err
	}
	return failingFile{file, f}, nil
}

type failingFile struct {
	sink.File
	fs *failingSync
}

func (f failingFile) Sync() error {
	if f.fs.ok--; f.fs.ok < 0 {
		f.fs.failed++
		return syscall.EIO
	}
	return f.File.Sync()
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
	d, err := sink.Create(dir, cfg)
	if err != nil {
		t.Fatal(err)
	}
	d.SetSyncEvery(0)
	killed := errors.New("killed")
	ctx, kill := context.WithCancelCause(t.Context())
	wait := start(ctx, t, d)
	for _, s := range all {
		if err := d.Append(t.Context(), s, func(error) {}); err != nil {
			t.Fatal(err)
		}
	}
	kill(killed)
	if err := wait(); !errors.Is(err, killed) {
		t.Errorf("Run() = %v, want the cause", err)
	}
}

func segments(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "wal", "*.wal"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestRecover tests that Create commits what an ended run had not, and that it is idempotent.
func TestRecover(t *testing.T) {
	t.Parallel()
	for _, format := range []sink.Format{sink.Parquet, sink.Arrow} {
		b := sinktest.NewBuilder(9)
		all := append(samples(5), b.Failure(4), b.Sample())
		dir := interrupted(t, all, sink.Config{Format: format})
		for path, body := range map[string]string{
			"data/.tmp-x.parquet": "half", "_commits/.tmp-y.json": "{", "wal/.tmp-z.wal": "",
			"data/part-run-0-9-00000000.parquet": "no entry names it", "failures/part-run-0-9-00000000.parquet": "nor this",
			"data/notes.txt": "of somebody else",
		} {
			if err := os.WriteFile(filepath.Join(dir, path), []byte(body), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		report, err := sink.Verify(t.Context(), dir, sink.VerifyOptions{})
		if err != nil || report.ProblemCount > 0 || report.WAL.Pending != int64(len(all)) || report.Samples != 0 {
			t.Errorf("Verify before: %v, %v, %+v", err, report.Problems, report.WAL)
		}
		d, err := sink.Create(dir, sink.Config{Format: format})
		if err != nil {
			t.Fatal(err)
		}
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
		b = sinktest.NewBuilder(9)
		compareDataset(t, dir, append(samples(5), b.Failure(4), b.Sample()))
		d, err = sink.Create(dir, sink.Config{Format: format})
		if err != nil || fmt.Sprint(d.Recovered()) != fmt.Sprint(sink.Recovery{}) {
			t.Errorf("Recovered() of the next = %+v, %v, want nothing", d.Recovered(), err)
		}
		log, err := sink.ReadLog(dir)
		if err != nil || len(log.Commits) != 1 {
			t.Fatalf("ReadLog: %+v, %v", log.Commits, err)
		}
		for _, s := range log.Commits[0].Samples {
			if want := map[bool]string{true: "model_output"}[s.Key == all[5].Key]; s.Class != want {
				t.Errorf("class of %+v, want %q", s, want)
			}
		}
	}
}

// TestRecoverKnown tests that samples of the write-ahead log in commits are not committed again.
func TestRecoverKnown(t *testing.T) {
	t.Parallel()
	b := sinktest.NewBuilder(9)
	all := append(samples(3), b.Failure(4))
	dir := interrupted(t, all, sink.Config{})
	segment := segments(t, dir)[0]
	body, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sink.Create(dir, sink.Config{}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(segment, body, 0o666); err != nil { // its removal was not durable
		t.Fatal(err)
	}
	report, err := sink.Verify(t.Context(), dir, sink.VerifyOptions{})
	if err != nil || report.WAL != (sink.WALReport{Segments: 1}) {
		t.Errorf("Verify: %v, %+v, want a segment with nothing pending", err, report.WAL)
	}
	d, err := sink.Create(dir, sink.Config{})
	if err != nil || d.Recovered().Known != 4 || d.Recovered().Replayed != 0 || len(segments(t, dir)) > 0 {
		t.Errorf("Recovered() = %+v, %v", d.Recovered(), err)
	}
	b = sinktest.NewBuilder(9)
	compareDataset(t, dir, append(samples(3), b.Failure(4)))
}

// TestRepair tests that a torn end is dropped, and that damage to durable data is refused with its
// place and repaired on request.
func TestRepair(t *testing.T) {
	t.Parallel()
	dir := interrupted(t, samples(4), sink.Config{})
	segment := segments(t, dir)[0]
	body, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	body[frame.HeaderSize+20_000] ^= 4                       // in the second or third frame
	body = append(body, "\xffRL\xfe\x00\x01\x00\x00half"...) // and the last one is torn
	if err := os.WriteFile(segment, body, 0o666); err != nil {
		t.Fatal(err)
	}
	_, err = sink.Create(dir, sink.Config{})
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
	if err := plan.Apply(); err != nil {
		t.Fatal(err)
	}
	if kept, err := os.ReadFile(filepath.Join(dir, s.Aside)); err != nil || !slices.Equal(kept, body) {
		t.Errorf("the damaged segment was not kept: %v", err)
	}
	if plan, err := sink.PlanRepair(nil, dir); err != nil || len(plan.Segments) > 0 {
		t.Errorf("after the repair there is to do: %+v, %v", plan, err)
	}
	d, err := sink.Create(dir, sink.Config{})
	if err != nil || d.Recovered().Replayed != 3 || len(segments(t, dir)) > 0 {
		t.Errorf("Create after the repair: %+v, %v", d.Recovered(), err)
	}
	if report, err = sink.Verify(t.Context(), dir, sink.VerifyOptions{}); err != nil || report.ProblemCount > 0 || report.Samples != 3 {
		t.Errorf("Verify: %v, %v, %d samples", err, report.Problems, report.Samples)
	}
}

// TestTornBeforeTheLast tests that a torn end of an earlier segment is damage, and so is a clean but
// earlier end: each segment is synced to its last mark before the next one begins.
func TestTornBeforeTheLast(t *testing.T) {
	t.Parallel()
	dir := interrupted(t, samples(2), sink.Config{})
	segment := segments(t, dir)[0]
	body, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, b []byte) {
		t.Helper()
		if err := os.WriteFile(name, b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	next := filepath.Join(dir, "wal", "00000002.wal")
	write(next, renumbered(body, 2))
	write(segment, body)
	if report, err := sink.Verify(t.Context(), dir, sink.VerifyOptions{}); err != nil || report.ProblemCount > 0 {
		t.Errorf("two whole segments: %v, %v", report.Problems, err)
	}
	for _, cut := range []int{0, frame.HeaderSize, len(body) - frame.Overhead - 1, len(body) - frame.Overhead, len(body) - 1} {
		write(segment, body[:cut])
		_, err := sink.Create(dir, sink.Config{})
		if !errors.Is(err, sink.ErrCorrupt) || !strings.Contains(err.Error(), "a later segment exists") || !strings.Contains(err.Error(), "wal/00000001.wal") {
			t.Errorf("cut at %d of %d: Create() = %v, want ErrCorrupt", cut, len(body), err)
		}
	}
	write(segment, body[:len(body)-frame.Overhead-1])
	if err := os.Remove(next); err != nil {
		t.Fatal(err)
	}
	d, err := sink.Create(dir, sink.Config{})
	if err != nil || d.Recovered().Replayed != 1 || d.Recovered().TornBytes == 0 {
		t.Errorf("Recovered() = %+v, %v", d.Recovered(), err)
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
	dir := interrupted(t, samples(3), sink.Config{})
	segment := segments(t, dir)[0]
	body, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	for bit := 0; bit < 8*len(body); bit += 8*37 + 5 {
		flipped := bytes.Clone(body)
		flipped[bit/8] ^= 1 << (bit % 8)
		if err := os.WriteFile(segment, flipped, 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := sink.Create(dir, sink.Config{}); !errors.Is(err, sink.ErrCorrupt) {
			t.Fatalf("bit %d of %d: Create() = %v, want ErrCorrupt", bit, 8*len(body), err)
		}
	}
}

// TestSegmentUnderAnotherName tests that a renamed segment is reported, and repair keeps its samples.
func TestSegmentUnderAnotherName(t *testing.T) {
	t.Parallel()
	dir := interrupted(t, samples(3), sink.Config{})
	segment := segments(t, dir)[0]
	if err := os.Rename(segment, filepath.Join(dir, "wal", "00000005.wal")); err != nil {
		t.Fatal(err)
	}
	if _, err := sink.Create(dir, sink.Config{}); !errors.Is(err, sink.ErrCorrupt) || !strings.Contains(err.Error(), "written as number 1") {
		t.Fatalf("Create() = %v", err)
	}
	plan, err := sink.PlanRepair(nil, dir)
	if err == nil {
		err = plan.Apply()
	}
	if err != nil {
		t.Fatal(err)
	}
	d, err := sink.Create(dir, sink.Config{})
	if err != nil || d.Recovered().Replayed != 3 {
		t.Errorf("Recovered() = %+v, %v", d.Recovered(), err)
	}
}

// TestNewerWAL tests that the log of a newer version is refused and not changed.
func TestNewerWAL(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "wal"), 0o777); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "wal", "00000001.wal")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := frame.NewWriter(f, frame.Header{Kind: "wal", Version: sink.WALVersion + 1}); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	_, createErr := sink.Create(dir, sink.Config{})
	_, verifyErr := sink.Verify(t.Context(), dir, sink.VerifyOptions{})
	_, planErr := sink.PlanRepair(nil, dir)
	for _, err := range []error{createErr, verifyErr, planErr} {
		if !errors.Is(err, sink.ErrNewer) || !strings.Contains(err.Error(), "wal/00000001.wal") {
			t.Errorf("%v, want ErrNewer and the file", err)
		}
	}
	if _, err := os.Stat(name); err != nil {
		t.Error(err)
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
	d, err := sink.Create(dir, cfg)
	if err != nil {
		t.Fatal(err)
	}
	d.SetSyncEvery(0)
	wait := start(t.Context(), t, d)
	for _, s := range samples(200) {
		if err := d.Append(t.Context(), s, func(error) {}); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := wait(); err != nil {
		t.Error(err)
	}
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
