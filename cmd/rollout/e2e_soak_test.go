package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
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
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc, which is Linux's")
	}
	return d
}

type soakPoint struct {
	at         time.Duration
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
	cfg := lettasim.Config{InputIDs: true, BodyCache: 256, Script: lettasim.Script{Tokens: lettasim.Range{Min: 400, Max: 800}}, Faults: recoverableFaults(0.002)}
	cfg.Latency = latencyOf(t, "8s..24s") // about 60 samples per second
	sim := newSim(t, cfg)
	dir := filepath.Join(t.TempDir(), "run")
	p := startProgram(t, "rollout", []string{"GOGC=50"}, "collect", "--server", serveSim(t, sim), "--model", simModel, "--out", dir,
		"-c", writeFile(t, "run.yaml", []byte("server: {adaptive: false}\noutput: {shard_age: 10s}\nrun: {fail_on_error: 1%}\n")),
		"--tasks", writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: 1 + int(long.Seconds())*10})),
		"--samples", "8", "--max-in-flight", fmt.Sprint(inFlight), "--metrics-addr", "127.0.0.1:0")
	var metrics string
	waitFor(t, "metrics", func() bool {
		metrics = metricsAddress.FindString(p.said())
		return metrics != "" || !p.alive()
	})
	var seen []soakPoint
	began := time.Now()
	for tick := time.NewTicker(time.Second); time.Since(began) < long && p.alive(); <-tick.C {
		point := look(p.cmd.Process.Pid, metrics)
		point.at, point.inFlight = time.Since(began), sim.Stats().InFlight
		seen = append(seen, point)
		if len(seen)%15 == 0 {
			t.Logf("%v: %.1f MB, %d goroutines, %d descriptors, %d in flight, %d answered", point.at.Round(time.Second), float64(point.resident)/1e6, point.goroutines, point.fds, point.inFlight, sim.Stats().Answered)
		}
	}
	if !p.alive() {
		t.Fatalf("the run ended by itself with exit code %d\n%s", p.code, p.said())
	}
	for range 2 { // a drain takes as long as a send; the second signal stops now
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		time.Sleep(time.Second)
	}
	if code := p.wait(t, 2*time.Minute); code != exit.Interrupted {
		t.Errorf("exit code %d\n%s", code, p.said())
	}
	mustRun(t, exit.OK, "verify", dir)

	// The warm-up ends when the maximum is in flight. The rest is split into two halves.
	warm := slices.IndexFunc(seen, func(p soakPoint) bool { return p.inFlight >= inFlight*9/10 })
	if warm < 0 {
		t.Fatalf("at most %d were in flight, want %d", sim.Stats().MaxInFlight, inFlight)
	}
	warm += len(seen[warm:]) / 5
	rest := seen[warm:]
	if len(rest) < 20 {
		t.Fatalf("%d points after warming up: too few to compare", len(rest))
	}
	flat(t, rest, soakPoint{resident: 8 << 20, goroutines: 50, fds: 50})
	t.Logf("%d samples answered in %v, at most %d in flight", sim.Stats().Answered, long, sim.Stats().MaxInFlight)
}

// TestSoakReplyDelay logs how long a finished reply takes to become durable, with 200 in flight. It
// measures from the last byte that the server wrote to the removal of the agent, which follows
// durability, on the server's clock.
func TestSoakReplyDelay(t *testing.T) { //nolint:paralleltest // it has the machine for itself
	soakTime(t)
	const tasks, samples, inFlight = 250, 8, 200
	cfg := lettasim.Config{InputIDs: true, BodyCache: 256, Script: lettasim.Script{Tokens: lettasim.Range{Min: 400, Max: 800}}}
	cfg.Latency = latencyOf(t, "1s..4s")
	sim := newSim(t, cfg)
	sends := newSendLog(sim)
	dir := filepath.Join(t.TempDir(), "run")
	p := startProgram(t, "rollout", nil, "collect", "--server", serveHandler(t, sim, sends), "--model", simModel, "--out", dir, "--quiet",
		"--tasks", writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: tasks})), "--samples", fmt.Sprint(samples), "--max-in-flight", fmt.Sprint(inFlight), "-c", writeFile(t, "run.yaml", []byte("server: {adaptive: false}\n")))
	if code := p.wait(t, 5*time.Minute); code != exit.OK {
		t.Fatalf("exit code %d\n%s", code, p.said())
	}
	var delays []time.Duration
	for id, list := range sends.all() {
		s := list[len(list)-1]
		if s.deleted.IsZero() {
			if !strings.HasPrefix(id.task, "scripted-") {
				continue // the sample of the preflight
			}
			t.Errorf("%v: its agent was never removed", id)
			continue
		}
		delays = append(delays, s.deleted.Sub(s.ended))
	}
	slices.Sort(delays)
	if len(delays) < tasks*samples {
		t.Fatalf("%d delays of %d samples", len(delays), tasks*samples)
	}
	at := func(q float64) time.Duration {
		return delays[int(q*float64(len(delays)-1))].Round(10 * time.Microsecond)
	}
	t.Logf("from the last byte of a reply to the removal of its agent, %d samples, %d in flight: p50 %v, p90 %v, p99 %v, most %v",
		len(delays), sim.Stats().MaxInFlight, at(0.5), at(0.9), at(0.99), at(1))
}
