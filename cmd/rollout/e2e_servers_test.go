package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
)

// A simProcess is a simulated server in its own process, with a password.
type simProcess struct {
	*process
	url, password string
}

// startSim starts a simulated server at an address. Each server has its own password, so it answers
// only requests with its own headers.
func startSim(t *testing.T, addr, password string, args ...string) *simProcess {
	t.Helper()
	ready := filepath.Join(t.TempDir(), "ready")
	s := &simProcess{password: password}
	s.process = startProgram(t, "rollout", []string{"SIM_PASSWORD=" + password}, append([]string{
		"simulate", "--listen", addr, "--ready-file", ready, "--input-ids", "--tokens", "8,40", "--password", "${env:SIM_PASSWORD}",
	}, args...)...)
	t.Cleanup(s.kill)
	waitFor(t, "the simulated server", func() bool {
		b, err := os.ReadFile(ready)
		s.url = strings.TrimSpace(string(b))
		return err == nil || !s.alive()
	})
	if !s.alive() {
		t.Fatalf("%s", s.said())
	}
	return s
}

// metricOf reads a metric of one server from the metrics of a collector. It returns -1 if the
// metric is none yet.
func metricOf(p *process, name, endpoint, labels string) float64 {
	page := metricsAddress.FindString(p.said())
	if page == "" {
		return -1
	}
	n, err := metric(page, name+`\{[^}]*endpoint="`+regexp.QuoteMeta(endpoint)+`"[^}]*`+labels+`\}`)
	if err != nil {
		return -1
	}
	return n
}

// A run with three servers, each with its own headers and limit, uses a killed server again after
// its restart, and continues with another list of servers. No limit is exceeded, no secret is
// stored, and no sample is duplicated.
func TestServersOfARun(t *testing.T) {
	t.Parallel()
	slow := []string{"--latency", "200ms..600ms"}
	var sims []*simProcess
	bounds := []int{4, 6, 5}
	env := []string{}
	add := func(i int) {
		password := fmt.Sprintf("canary-%d-5up3r", i)
		sims = append(sims, startSim(t, "127.0.0.1:0", password, slow...))
		env = append(env, fmt.Sprintf("KEY%d=password %s", i, password))
	}
	for i := range bounds {
		add(i)
	}
	entry := func(i, most int, weight float64) string {
		return fmt.Sprintf("    - {url: %q, weight: %v, max_in_flight: %d, headers: {X-BARE-PASSWORD: \"${env:KEY%d}\"}}\n", sims[i].url, weight, most, i)
	}
	config := func(urls string) string {
		return writeFile(t, "run.yaml", []byte("server:\n  urls:\n"+urls+"agent: {model: "+simModel+"}\ntasks: {samples: 10}\nrun: {metrics_addr: \"127.0.0.1:0\", grace: 20s}\noutput: {shard_age: 1s}\n"))
	}
	dir := filepath.Join(t.TempDir(), "run")
	tasks := manyTasks(t, 600) // more than the run collects
	args := []string{"collect", "--tasks", tasks, "--out", dir, "-c"}

	p := startProgram(t, "rollout", env, append(args, config(entry(0, bounds[0], 1)+entry(1, bounds[1], 2)+entry(2, bounds[2], 0.5)))...)
	sent := func(i int) float64 { return metricOf(p, `rollout_http_requests_total`, sims[i].url, `,method="POST"`) }
	down := func(i int) float64 { return metricOf(p, "rollout_breaker_open", sims[i].url, "") }
	awaits := func(what string, done func() bool) {
		t.Helper()
		waitFor(t, what, func() bool { return done() || !p.alive() })
		if !p.alive() {
			t.Fatalf("the run ended before %s\n%s", what, p.said())
		}
	}
	awaits("all servers to be at work", func() bool { return sent(0) > 20 && sent(1) > 20 && sent(2) > 20 })
	for i, want := range bounds {
		if got := metricOf(p, "rollout_concurrency_ceiling", sims[i].url, ""); got != float64(want) {
			t.Errorf("server %d may have %v in flight, want %d", i, got, want)
		}
	}
	_ = p.cmd.Process.Signal(syscall.SIGUSR1) // it is alive
	awaits("a status with every server", func() bool {
		for i := range bounds {
			if !strings.Contains(p.said(), fmt.Sprintf("%s: ", sims[i].url)) || !strings.Contains(p.said(), fmt.Sprintf(" of %d; answers", bounds[i])) {
				return false
			}
		}
		return true
	})

	sims[1].kill()
	awaits("the dead server to count as down", func() bool { return down(1) == 1 })
	before := sent(0)
	awaits("the others to go on", func() bool { return sent(0) > before+20 })
	addr := strings.TrimPrefix(sims[1].url, "http://")
	sims[1] = startSim(t, addr, sims[1].password, slow...)
	awaits("the server to be back", func() bool { return down(1) == 0 })
	before = sent(1)
	awaits("the server to be used again", func() bool { return sent(1) > before+20 })
	_ = p.cmd.Process.Signal(os.Interrupt) // it is alive
	if code := p.wait(t, 90*time.Second); code != exit.Interrupted {
		t.Fatalf("exit code %d\n%s", code, p.said())
	}
	first := len(readDataset(t, dir).keys())

	// Another list: one server is gone, one is new, one has another limit.
	add(3)
	p = startProgram(t, "rollout", env, "collect", "--resume", "--out", dir, "-c", config(entry(0, 9, 1)+entry(3, 3, 1)))
	awaits("the new server to be at work", func() bool { return sent(3) > 20 && sent(0) > 20 })
	_ = p.cmd.Process.Signal(os.Interrupt) // it is alive
	if code := p.wait(t, 90*time.Second); code != exit.Interrupted {
		t.Fatalf("exit code %d\n%s", code, p.said())
	}
	// Without servers on the command line, the run uses its own, with the references of their
	// headers.
	p = startProgram(t, "rollout", append(env, "ROLLOUT_RUN_METRICS_ADDR=127.0.0.1:0"), "collect", "--resume", "--out", dir)
	awaits("the run's own servers to be at work", func() bool { return sent(3) > 20 && sent(0) > 20 })
	if got := metricOf(p, "rollout_concurrency_ceiling", sims[3].url, ""); got != 3 {
		t.Errorf("the new server may have %v in flight, want 3", got)
	}
	_ = p.cmd.Process.Signal(os.Interrupt) // it is alive
	if code := p.wait(t, 90*time.Second); code != exit.Interrupted {
		t.Fatalf("exit code %d\n%s", code, p.said())
	}

	got := readDataset(t, dir)
	for key, n := range got.keys() {
		if n != 1 {
			t.Errorf("sample %s is there %d times", key, n)
		}
	}
	if n := len(got.keys()); n <= first || len(got.failures) != 0 {
		t.Errorf("%d samples, %d of them before the resume; %d failed", n, first, len(got.failures))
	}
	// The other verbs also send each server its own headers.
	for _, verb := range [][]string{{"clean", "--dry-run", dir}, {"doctor", "--prompt", "Add 2 and 3.", "-c", config(entry(0, 4, 1) + entry(3, 4, 1))}} {
		cmd := exec.CommandContext(t.Context(), "rollout", verb...)
		cmd.Env = append(os.Environ(), env...)
		if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "agent-") {
			t.Errorf("rollout %v: %v\n%s", verb, err, out)
		}
	}
	noSecretsIn(t, dir)
	for i, s := range sims {
		most := bounds[min(i, 2)]
		if i == 0 {
			most = 9
		}
		_ = s.cmd.Process.Signal(os.Interrupt) // it is alive
		s.wait(t, 30*time.Second)
		var n int
		if m := regexp.MustCompile(`at most (\d+) at once`).FindStringSubmatch(s.said()); m != nil {
			n, _ = strconv.Atoi(m[1]) // digits
		}
		if n == 0 || n > most {
			t.Errorf("server %d had %d sends at once, want at most %d:\n%s", i, n, most, s.said())
		}
	}
}

// noSecretsIn fails the test if a file of the run contains a canary.
func noSecretsIn(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if strings.Contains(string(b), "canary-") {
			t.Errorf("%s holds a secret", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
