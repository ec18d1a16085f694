package sink_test

import (
	"cmp"
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

// cutGroups returns three groups. Each sequence has a sample of each.
func cutGroups() (lines [3][]*tokenize.Sample) {
	b := sinktest.NewBuilder(11)
	for id := range 3 {
		for i, s := range group(b, id, 3) {
			lines[i] = append(lines[i], s)
		}
	}
	return lines
}

// live runs a process on the file system until it has appended all samples that the log lacks, or
// something fails. It adds the samples for which Append returned nil to durable, and returns the
// arguments of done and the first error.
func live(
	t *testing.T, fs sink.FS, cfg sink.Config, lines [3][]*tokenize.Sample, durable map[attemptID]bool,
) (done map[attemptID]error, first error) {
	t.Helper()
	done = map[attemptID]error{}
	d, err := sink.Create("run", withFS(cfg, fs))
	if err != nil {
		return done, err
	}
	d.SetSyncEvery(0)
	wait := start(t.Context(), t, d)
	var feed sync.WaitGroup
	var mu sync.Mutex
	accepted := 0
	for _, line := range lines {
		feed.Go(func() {
			for _, s := range line {
				id := idOf(s)
				mu.Lock()
				there := durable[id]
				mu.Unlock()
				if there {
					continue
				}
				err := d.Append(t.Context(), s, func(err error) {
					mu.Lock()
					defer mu.Unlock()
					if _, again := done[id]; again {
						t.Errorf("done of %v was called twice", id)
					}
					done[id] = err
				})
				mu.Lock()
				switch {
				case err == nil:
					accepted++
				case !errors.Is(err, sink.ErrCommitted):
					first = cmp.Or(first, err)
					mu.Unlock()
					return
				}
				durable[id] = true
				mu.Unlock()
			}
		})
	}
	feed.Wait()
	closed := d.Close(context.Background())
	if err := wait(); !errors.Is(closed, err) {
		t.Errorf("Close() = %v, Run() = %v", closed, err)
	}
	if s := d.Stats(); len(done) != accepted || s.BytesInFlight != 0 || s.Pending != 0 && !cfg.CommitGroups {
		t.Errorf("done was called for %d samples of %d; at the end %+v", len(done), accepted, s)
	}
	return done, cmp.Or(first, closed)
}

// inLog counts the attempts in the log and, with groups, those that wait in the write-ahead log. None
// must be there twice.
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
	for id, times := range n {
		if times > 1 {
			t.Errorf("%v is %d times in the log", id, times)
		}
	}
	return n
}

// TestPowerCut cuts the power or kills the process at every operation of a run with many commits, and cuts
// some recoveries too. In the end each attempt that was reported durable exists once, none twice, and with
// CommitGroups each group is in one commit, with one verdict in its rows and its entry.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	for round, tt := range []struct {
		name  string
		cfg   sink.Config
		lines func() [3][]*tokenize.Sample
	}{
		{"parquet", sink.Config{MaxShardBytes: 2500, RowGroupTokens: 1000}, cutSamples},
		{"groups", sink.Config{CommitGroups: true, RowGroupTokens: 1000, MergeAt: 1000, Judge: judgeEven}, cutGroups},
		{"arrow", sink.Config{Format: sink.Arrow, MaxShardBytes: 2500, RowGroupTokens: 1000}, cutSamples},
	} {
		if testing.Short() && tt.name == "arrow" {
			continue
		}
		probe := newPowerCut("run", 0)
		probe.CutAt(-1)
		_, err := live(t, probe, tt.cfg, tt.lines(), map[attemptID]bool{})
		must(t, err)
		steps := len(probe.Steps())
		t.Logf("%s: %d operations", tt.name, steps)
		for at := range steps {
			t.Run(fmt.Sprintf("%s/at=%d", tt.name, at), func(t *testing.T) {
				t.Parallel()
				fs := cutOnce(t, tt.cfg, tt.lines(), at, uint64(round))
				if tt.cfg.CommitGroups {
					wholeGroups(t, dump(t, fs), 3)
				}
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
	if _, err := live(t, fs, cfg, lines, durable); err != nil && !errors.Is(err, errPower) {
		t.Fatalf("%v does not wrap its cause", err)
	}
	for range rng.IntN(4) {
		back(rng, fs)
		cardNames(t, dump(t, fs), false)
		fs.CutAt(rng.IntN(60))
		if _, err := sink.Create("run", withFS(cfg, fs)); err != nil && !errors.Is(err, errPower) {
			t.Fatalf("recovery: %v", err)
		}
	}
	back(rng, fs)
	goOn(t, fs, cfg, lines, durable)
	return fs
}

// goOn recovers the dataset, which must have all durable samples, and appends the rest.
func goOn(t *testing.T, fs *powerCut, cfg sink.Config, lines [3][]*tokenize.Sample, durable map[attemptID]bool) {
	t.Helper()
	if _, err := sink.Create("run", withFS(cfg, fs)); err != nil {
		t.Fatalf("the last recovery: %v", err)
	}
	n := inLog(t, fs, cfg.CommitGroups)
	for id := range durable {
		if n[id] == 0 {
			t.Errorf("%v was durable and is lost", id)
		}
	}
	fs.Kill()
	for id := range n {
		durable[id] = true
	}
	if _, err := live(t, fs, cfg, lines, durable); err != nil {
		t.Fatalf("the run that continues: %v", err)
	}
	n = inLog(t, fs, cfg.CommitGroups)
	for _, s := range slices.Concat(lines[:]...) {
		if n[idOf(s)] == 0 && (s.Attempt > 1 || len(s.Failures) == 0 || len(s.Rows) > 0) { // a late failure is refused
			t.Errorf("%v is not in the complete dataset", idOf(s))
		}
	}
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

// TestSegmentsThatComeBack tests that deleted segments that a power failure brings back are not damage while
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
