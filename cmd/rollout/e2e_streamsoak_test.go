package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

func filesOf(t *testing.T, dir string) (n int64, by map[string]int) {
	t.Helper()
	by = map[string]int{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil // a merge moved it meanwhile
		}
		if err == nil && !e.IsDir() {
			n++
			in, _ := filepath.Rel(dir, filepath.Dir(path))
			by[in]++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n, by
}

// trainFor simulates a trainer that takes and acknowledges iterations of four groups, for a
// duration or a number of iterations. It calls each between two iterations.
func (s *streamed) trainFor(long time.Duration, iterations int, each func(n int)) (groups int) {
	s.t.Helper()
	began, given := time.Now(), 0
	more := func(n int) {
		for range n {
			given++
			s.give(fmt.Appendf(nil, `{"id":"s-%d","prompt":"Add %d and %d.","answer":"%d"}`+"\n", given, given, given%97, given+given%97))
		}
	}
	more(8 * loopTasks)
	n := 0
	for ; n < iterations && time.Since(began) < long; n++ {
		told := s.take(loopTasks)
		s.ack(told[loopTasks-1])
		groups += loopTasks
		more(loopTasks)
		each(n)
	}
	return groups + len(s.take(given-groups))
}

func startSoakStream(t *testing.T) *streamed {
	t.Helper()
	cfg := lettasim.Config{InputIDs: true, BodyCache: 256, Script: lettasim.Script{Calls: lettasim.Range{Min: 1, Max: 2}, Tokens: lettasim.Range{Min: 24, Max: 200}}}
	cfg.Latency = latencyOf(t, "4ms~0.8") // a hundredth of the loop's latency
	return startStream(t, "rollout", filepath.Join(t.TempDir(), "run"), "--server", serveSim(t, newSim(t, cfg)), "--model", simModel,
		"--samples", fmt.Sprint(loopSamples), "--max-in-flight", "64", "--max-ahead", fmt.Sprint(8*loopTasks), "--metrics-addr", "127.0.0.1:0",
		"-c", writeFile(t, "run.yaml", []byte("server: {adaptive: false}\n")))
}

// With --stream for ROLLOUT_SOAK, as fast as the trainer takes groups, files, memory, goroutines
// and descriptors stay constant, and verify passes at any moment. The test logs the equivalent
// hours of a loop that trains 32 samples in three seconds, by samples, commits, merges and
// acknowledgements.
func TestStreamSoak(t *testing.T) { //nolint:paralleltest // it has the machine for itself
	long := soakTime(t)
	s := startSoakStream(t)
	began := time.Now()
	var seen []soakPoint
	var files []int64
	next, verify := began, began.Add(long/20)
	groups := s.trainFor(long, 1<<40, func(n int) {
		now := time.Now()
		if now.After(verify) {
			verify = now.Add(long / 10)
			mustRun(t, exit.OK, "verify", s.dir)
		}
		if now.Before(next) {
			return
		}
		next = now.Add(time.Second)
		p := look(s.cmd.Process.Pid, s.metrics())
		p.at = now.Sub(began)
		n64, by := filesOf(t, s.dir)
		seen, files = append(seen, p), append(files, n64)
		if len(seen)%15 == 0 {
			t.Logf("%v: %d iterations, %.1f MB, %d goroutines, %d descriptors, files %v", p.at.Round(time.Second), n+1, float64(p.resident)/1e6, p.goroutines, p.fds, by)
		}
	})
	took := time.Since(began)
	s.close()
	if len(seen) < 20 {
		t.Fatalf("%d points: too few to compare", len(seen))
	}
	from := len(seen) / 5
	half := from + (len(seen)-from)/2
	flat(t, seen[from:], soakPoint{resident: 16 << 20, goroutines: 30, fds: 30})
	// During a large merge the small commits wait, so the maximum depends on its duration, here
	// with 60 times the commits of a loop. The median is what counts.
	median := func(list []int64) int64 { return slices.Sorted(slices.Values(list))[len(list)/2] }
	a, b := median(files[from:half]), median(files[half:])
	if b > a+a/2+20 || slices.Max(files) > 5000 {
		t.Errorf("files grew from %d to %d (medians), most %d", a, b, slices.Max(files))
	}
	t.Logf("files: median %d in the first half, %d in the second, most %d", a, b, slices.Max(files))
	t.Logf("%d groups, %d samples in %v: %.1f hours of a loop of 32 samples in three seconds",
		groups, groups*loopSamples, took.Round(time.Second), float64(groups*loopSamples)/32*3/3600)
}

// The number of files of a run with --stream does not grow with its commits. Merges keep up with a
// trainer that acknowledges, and verify passes meanwhile.
func TestStreamKeepsFewFiles(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("no Unix socket there")
	}
	s := startSoakStream(t)
	iterations := 60
	if testing.Short() {
		iterations = 25
	}
	var most int64
	groups := s.trainFor(time.Minute, iterations, func(n int) {
		if n%20 == 19 {
			mustRun(t, exit.OK, "verify", s.dir)
		}
		files, _ := filesOf(t, s.dir)
		most = max(most, files)
	})
	waitFor(t, "merges to catch up", func() bool {
		files, _ := filesOf(t, s.dir)
		return files <= 60
	})
	s.close()
	files, by := filesOf(t, s.dir)
	commits := s.told()["commit"]
	t.Logf("%d groups in %d commits: at most %d files, %d at the end: %v", groups, commits, most, files, by)
	if commits < iterations/4 || files > 60 {
		t.Errorf("%d files of %d commits at the end: %v", files, commits, by)
	}
	if s.told()["group"] != groups {
		t.Errorf("%d groups were reported, %d committed", s.told()["group"], groups)
	}
}
