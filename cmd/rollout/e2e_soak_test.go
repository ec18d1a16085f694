package main

import (
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// soakTime returns the duration of the soak from ROLLOUT_SOAK, or skips the test.
func soakTime(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("ROLLOUT_SOAK")
	if text == "" {
		t.Skip("takes minutes: run make soak, or set ROLLOUT_SOAK to a time such as 2m")
	}
	d := must(time.ParseDuration(text))(t)
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc: Linux only")
	}
	return d
}

type soakPoint struct {
	resident   int64 // bytes
	fds        int
	goroutines int
	inFlight   int64
}

func look(pid int, metrics string) soakPoint {
	p := soakPoint{resident: resident(pid)}
	fds, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	p.fds = len(fds)
	n, _ := metric(metrics, "go_goroutines")
	p.goroutines = int(n)
	return p
}

// metricsAddress matches the address of the metrics in the output of a program.
var metricsAddress = regexp.MustCompile(`http://[^\s"/]+/metrics`)

func metric(url, name string) (float64, error) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	m := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindSubmatch(b)
	if m == nil {
		return 0, fmt.Errorf("%s has no metric %s", url, name)
	}
	return strconv.ParseFloat(string(m[1]), 64)
}

// flat fails the test if the maximum in the second half of the points exceeds the maximum of the
// first half by more than an eighth plus the slack.
func flat(t *testing.T, seen []soakPoint, slack soakPoint) {
	t.Helper()
	for _, what := range []struct {
		name string
		of   func(soakPoint) int64
	}{
		{"resident bytes", func(p soakPoint) int64 { return p.resident }},
		{"goroutines", func(p soakPoint) int64 { return int64(p.goroutines) }},
		{"descriptors", func(p soakPoint) int64 { return int64(p.fds) }},
	} {
		most := func(points []soakPoint) (n int64) {
			for _, p := range points {
				n = max(n, what.of(p))
			}
			return n
		}
		a, b := most(seen[:len(seen)/2]), most(seen[len(seen)/2:])
		if a == 0 || b > a+a/8+what.of(slack) {
			t.Errorf("%s grew from %d to %d", what.name, a, b)
		}
		t.Logf("%s: at most %d in the first half, %d in the second", what.name, a, b)
	}
}

// Memory, goroutines and file descriptors stay constant with 1,000 samples in flight for
// ROLLOUT_SOAK.
func TestSoak(t *testing.T) { //nolint:paralleltest // it has the machine for itself
	long := soakTime(t)
	const inFlight = 1000
	// The latency gives about 60 samples per second.
	sim := newSim(t, lettasim.Config{InputIDs: true, BodyCache: 256, Script: lettasim.Script{Tokens: lettasim.Range{Min: 400, Max: 800}}, Faults: recoverableFaults(0.002), Latency: latencyOf(t, "8s..24s")})
	dir, args := collectArgs(t, sim, serveSim(t, sim), 1+int(long.Seconds())*10, "--samples", "8", "--max-in-flight", fmt.Sprint(inFlight), "--metrics-addr", "127.0.0.1:0",
		"-c", writeFile(t, "run.yaml", []byte("server: {adaptive: false}\noutput: {shard_age: 10s}\nrun: {fail_on_error: 1%}\n")))
	p := startProgram(t, "rollout", []string{"GOGC=50"}, args...)
	var metrics string
	waitFor(t, "metrics", func() bool {
		metrics = metricsAddress.FindString(p.said())
		return metrics != "" || !p.alive()
	})
	var seen []soakPoint
	began := time.Now()
	for tick := time.NewTicker(time.Second); time.Since(began) < long && p.alive(); <-tick.C {
		point := look(p.cmd.Process.Pid, metrics)
		point.inFlight = sim.Stats().InFlight
		seen = append(seen, point)
		if len(seen)%15 == 0 {
			t.Logf("%v: %.1f MB, %d goroutines, %d descriptors, %d in flight, %d answered", time.Since(began).Round(time.Second), float64(point.resident)/1e6, point.goroutines, point.fds, point.inFlight, sim.Stats().Answered)
		}
	}
	if !p.alive() {
		t.Fatalf("the run ended by itself with exit code %d\n%s", p.code, p.said())
	}
	for range 2 { // a drain takes as long as a send; the second signal stops now
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		time.Sleep(time.Second)
	}
	p.ends(t, 2*time.Minute, exit.Interrupted)
	mustRun(t, exit.OK, "verify", dir)

	// The warm-up ends when the maximum is in flight. The rest is split into two halves.
	warm := slices.IndexFunc(seen, func(p soakPoint) bool { return p.inFlight >= inFlight*9/10 })
	if warm < 0 {
		t.Fatalf("at most %d were in flight, want %d", sim.Stats().MaxInFlight, inFlight)
	}
	rest := seen[warm+len(seen[warm:])/5:]
	if len(rest) < 20 {
		t.Fatalf("%d points after warming up: too few to compare", len(rest))
	}
	flat(t, rest, soakPoint{resident: 8 << 20, goroutines: 50, fds: 50})
	t.Logf("%d samples answered in %v, at most %d in flight", sim.Stats().Answered, long, sim.Stats().MaxInFlight)
}

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
// duration or a number of iterations, and then the groups that are left. It calls each between two iterations.
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
	told := s.take(given - groups)
	s.ack(told[len(told)-1]) // otherwise files of merged groups stay
	return given
}

func startSoakStream(t *testing.T) *streamed {
	t.Helper()
	sim := newSim(t, lettasim.Config{
		InputIDs: true, BodyCache: 256, Script: lettasim.Script{Calls: lettasim.Range{Min: 1, Max: 2}, Tokens: lettasim.Range{Min: 24, Max: 200}},
		Latency: latencyOf(t, "4ms~0.8"), // a hundredth of the loop's latency
	})
	return startStream(t, filepath.Join(t.TempDir(), "run"), nil, "--server", serveSim(t, sim), "--model", simModel,
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
		n64, by := filesOf(t, s.dir)
		seen, files = append(seen, p), append(files, n64)
		if len(seen)%15 == 0 {
			t.Logf("%v: %d iterations, %.1f MB, %d goroutines, %d descriptors, files %v", now.Sub(began).Round(time.Second), n+1, float64(p.resident)/1e6, p.goroutines, p.fds, by)
		}
	})
	took := time.Since(began)
	s.close()
	if len(seen) < 20 {
		t.Fatalf("%d points: too few to compare", len(seen))
	}
	from := len(seen) / 5
	flat(t, seen[from:], soakPoint{resident: 16 << 20, goroutines: 30, fds: 30})
	// During a large merge the small commits wait, so the maximum depends on its duration, here
	// with 60 times the commits of a loop. The median is what counts.
	a, b := medians(files[from:])
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
