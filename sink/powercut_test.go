package sink_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/tokenize"
)

// attemptID identifies an attempt in a commit.
type attemptID struct {
	key string
	n   int32
}

func idOf(s *tokenize.Sample) attemptID { return attemptID{s.Key, s.Attempt} }

// cutSamples returns three sequences of samples to append in order, with retries of failures.
func cutSamples() (lines [3][]*tokenize.Sample) {
	b := sinktest.NewBuilder(11)
	for i := range lines {
		fails := b.Failure(3)
		again := b.Sample(b.Row(20, 30))
		again.Key, again.Attempt = fails.Key, 2
		again.RolloutID = fmt.Sprintf("%s/%d", again.Key, again.Attempt)
		lines[i] = []*tokenize.Sample{b.Sample(b.Row(40, 300)), fails, again, b.Sample(b.Row(2, 5), b.Row(400, 9))}
	}
	return lines
}

// live runs a process on the file system until it has appended all samples that the log lacks, or the
// power is cut. It adds the samples for which Append returned nil to durable, and returns the error
// that ended it.
func live(t *testing.T, fs sink.FS, cfg sink.Config, lines [3][]*tokenize.Sample, durable map[attemptID]bool) error {
	t.Helper()
	cfg.FS = fs
	d, err := sink.Create("run", cfg)
	if err != nil {
		return err
	}
	d.SetSyncEvery(0)
	var run, feed sync.WaitGroup
	run.Go(func() { _ = d.Run(t.Context()) }) // Close returns the error too
	var mu sync.Mutex
	for _, line := range lines {
		feed.Go(func() {
			for _, s := range line {
				mu.Lock()
				there := durable[idOf(s)]
				mu.Unlock()
				if there {
					continue
				}
				err := d.Append(t.Context(), s, func(error) {})
				if err != nil && !errors.Is(err, sink.ErrCommitted) {
					return
				}
				mu.Lock()
				durable[idOf(s)] = true
				mu.Unlock()
			}
		})
	}
	feed.Wait()
	err = d.Close(context.Background())
	run.Wait()
	return err
}

// inLog counts the attempts in the log and, with groups, those that wait in the write-ahead log.
func inLog(t *testing.T, fs *powerCut, groups bool) map[attemptID]int {
	t.Helper()
	dir := dump(t, fs)
	cardNames(t, dir, true)
	report := wholeVerify(t, dir)
	if len(report.Orphans) > 0 || report.WAL != (sink.WALReport{}) && !groups || report.WAL.Segments > 1 {
		t.Errorf("recovery left orphans %q, write-ahead log %+v", report.Orphans, report.WAL)
	}
	log := readLog(t, dir)
	n := map[attemptID]int{}
	for _, c := range log.Commits {
		for _, s := range c.Samples {
			n[attemptID{s.Key, s.Attempt}]++
		}
	}
	for w := range each(t, log.Waiting()) {
		n[attemptID{w.Key, w.Attempt}]++
	}
	return n
}

// TestPowerCut cuts the power or kills the process at every operation of a run with many commits, in both
// formats, and cuts some recoveries too. In the end each attempt that was reported durable exists once, none twice.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	lines := cutSamples()
	formats := []sink.Format{sink.Parquet, sink.Arrow}
	if testing.Short() {
		formats = formats[:1]
	}
	for round, format := range formats {
		cfg := sink.Config{Format: format, MaxShardBytes: 2500, RowGroupTokens: 1000}
		probe := newPowerCut("run", 0)
		probe.CutAt(-1)
		must(t, live(t, probe, cfg, lines, map[attemptID]bool{}))
		steps := len(probe.Steps())
		t.Logf("%s: %d operations", format, steps)
		for at := range steps {
			t.Run(fmt.Sprintf("%s/at=%d", format, at), func(t *testing.T) {
				t.Parallel()
				cutOnce(t, cfg, lines, at, uint64(round))
			})
		}
	}
}

// cutOnce returns the file system after all samples are in the dataset.
func cutOnce(t *testing.T, cfg sink.Config, lines [3][]*tokenize.Sample, at int, seed uint64) *powerCut {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, uint64(at)))
	fs := newPowerCut("run", rng.Uint64())
	durable := map[attemptID]bool{}
	fs.CutAt(at)
	err := live(t, fs, cfg, lines, durable)
	if err != nil && !errors.Is(err, errPower) {
		t.Fatalf("seed %d: %v does not wrap its cause", seed, err)
	}
	for range rng.IntN(4) {
		back(rng, fs)
		cardNames(t, dump(t, fs), false)
		fs.CutAt(rng.IntN(60))
		_, err := sink.Create("run", withFS(cfg, fs))
		if err != nil && !errors.Is(err, errPower) {
			t.Fatalf("seed %d: recovery: %v", seed, err)
		}
	}
	back(rng, fs)
	if _, err := sink.Create("run", withFS(cfg, fs)); err != nil {
		t.Fatalf("seed %d: the last recovery: %v", seed, err)
	}
	n := inLog(t, fs, cfg.CommitGroups)
	for id := range durable {
		if n[id] == 0 {
			t.Errorf("seed %d: %v was durable and is lost", seed, id)
		}
	}
	once(t, n)
	fs.Kill()
	for id := range n {
		durable[id] = true
	}
	if err := live(t, fs, cfg, lines, durable); err != nil {
		t.Fatalf("seed %d: the run that continues: %v", seed, err)
	}
	n = inLog(t, fs, cfg.CommitGroups)
	once(t, n)
	for _, s := range slices.Concat(lines[:]...) {
		if n[idOf(s)] == 0 && (s.Attempt > 1 || len(s.Failures) == 0) { // a late failure is refused
			t.Errorf("seed %d: %v is not in the complete dataset", seed, idOf(s))
		}
	}
	return fs
}

// back restarts the machine, or only the process.
func back(rng *rand.Rand, fs *powerCut) {
	if rng.IntN(3) == 0 {
		fs.Kill()
	} else {
		fs.Restart()
	}
}

func withFS(cfg sink.Config, fs sink.FS) sink.Config {
	cfg.FS = fs
	return cfg
}

func once(t *testing.T, n map[attemptID]int) {
	t.Helper()
	for id, times := range n {
		if times > 1 {
			t.Errorf("%v is %d times in the log", id, times)
		}
	}
}

// TestSegmentsThatComeBack tests that deleted segments that a power cut brings back are not damage while
// the new segment with the first number is torn. TestPowerCut has too few segments for this.
func TestSegmentsThatComeBack(t *testing.T) {
	t.Parallel()
	lone := cutSamples()[0][0]
	body := readFile(t, segments(t, interrupted(t, samples(3), sink.Config{}))[0])
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 2))
		disk := newPowerCut("run", rng.Uint64())
		putSegments(t, disk, body, body)
		if rng.IntN(2) == 0 { // an earlier process removed them
			for n := range 2 {
				must(t, disk.Remove(segmentPath(n)))
			}
		}
		d := open(t, "run", sink.Config{FS: disk})
		disk.CutAt(rng.IntN(8)) // at the beginning of the new segment
		wait := start(t.Context(), t, d)
		_ = d.Append(t.Context(), lone, func(error) {}) // durable or not
		_, _ = d.Close(t.Context()), wait()
		disk.Restart()
		if _, err := sink.Create("run", sink.Config{FS: disk}); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// putSegments writes a write-ahead log with the given segments durably.
func putSegments(t *testing.T, disk *powerCut, bodies ...[]byte) {
	t.Helper()
	must(t, errors.Join(disk.MkdirAll("run/wal"), disk.SyncDir("run")))
	for i, body := range bodies {
		f, err := disk.Create(segmentPath(i))
		must(t, err)
		_, err = f.Write(renumbered(body, uint64(i+1)))
		must(t, errors.Join(err, f.Sync(), f.Close()))
	}
	must(t, disk.SyncDir("run/wal"))
}

func segmentPath(i int) string { return filepath.Join("run", "wal", fmt.Sprintf("%08d.wal", i+1)) }
