package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// A gateway forwards connections to a server until the test cuts them.
type gateway struct {
	to   string // host:port
	addr string // its own address
	mu   sync.Mutex
	in   net.Listener // nil while it is down
	open map[net.Conn]bool
}

func newGateway(t *testing.T, to string) *gateway {
	t.Helper()
	g := &gateway{to: strings.TrimPrefix(to, "http://"), open: map[net.Conn]bool{}}
	for g.in == nil {
		// Use a port below the range that the system assigns, so that it is still free when the
		// gateway comes up again.
		g.addr = fmt.Sprint("127.0.0.1:", 10000+rand.IntN(20000))
		if err := g.listen(t); err != nil && !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatal(err)
		}
	}
	t.Cleanup(g.down)
	return g
}

func (g *gateway) url() string { return "http://" + g.addr }

func (g *gateway) up(t *testing.T) {
	t.Helper()
	if err := g.listen(t); err != nil {
		t.Fatal(err)
	}
}

func (g *gateway) listen(t *testing.T) error {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", g.addr)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.in = l
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go g.pass(conn)
		}
	}()
	return nil
}

func (g *gateway) pass(client net.Conn) {
	server, err := net.Dial("tcp", g.to)
	if err != nil {
		_ = client.Close()
		return
	}
	g.mu.Lock()
	g.open[client], g.open[server] = true, true
	g.mu.Unlock()
	done := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{client, server}, {server, client}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1])
			done <- struct{}{}
		}()
	}
	<-done
	g.mu.Lock()
	delete(g.open, client)
	delete(g.open, server)
	g.mu.Unlock()
	_ = errors.Join(client.Close(), server.Close())
	<-done
}

func (g *gateway) cut() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	for conn := range g.open {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = conn.Close()
	}
	return len(g.open) / 2
}

// down refuses connections and cuts the open ones.
func (g *gateway) down() {
	g.mu.Lock()
	if g.in != nil {
		_ = g.in.Close()
		g.in = nil
	}
	g.mu.Unlock()
	g.cut()
}

// An unreachable server ends the run before it begins, with a message that names the server and the
// reason.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	closed, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refusing := closed.Addr().String()
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	tasks := writeFile(t, "tasks.jsonl", []byte(`{"id":"a","prompt":"Hi."}`+"\n"))
	for _, tt := range []struct{ name, url, want string }{
		{"name", "http://no-such-host.invalid", `no-such-host\.invalid.*(no such host|server misbehaving|timeout|temporary failure)`},
		{"refused", "http://" + refusing, regexp.QuoteMeta(refusing) + `.*connection refused`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "run")
			began := time.Now()
			r := invoke(t.Context(), "collect", "--server", tt.url, "--model", simModel, "--tasks", tasks, "--out", dir)
			if r.code != exit.Unusable || !regexp.MustCompile(tt.want).MatchString(r.stderr) || !strings.Contains(r.stderr, tt.url) {
				t.Errorf("exit code %d, want %d and %s\n%s", r.code, exit.Unusable, tt.want, r.stderr)
			}
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("it took %v to report it", took)
			}
			if entries, _ := filepath.Glob(dir + "/*"); entries != nil {
				t.Errorf("a run that never started left %v", entries)
			}
			t.Log(strings.TrimSpace(r.stderr))
		})
	}
}

// If a recoverable fault hits the first attempts, all samples still become data, equal to the data
// without the fault.
func TestFaultByFault(t *testing.T) {
	t.Parallel()
	const tasks = 12
	collect := func(t *testing.T, faults lettasim.Faults) (map[sampleID]string, *lettasim.Server) {
		t.Helper()
		sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript(), Faults: faults})
		dir := filepath.Join(t.TempDir(), "run")
		mustRun(t, exit.OK, "collect", "--server", serveSim(t, sim), "--model", simModel, "--out", dir, "--quiet", "--max-in-flight", "12",
			"--tasks", writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: tasks})),
			"-c", writeFile(t, "run.yaml", []byte("server: {idle_timeout: 1s}\n")))
		return readDataset(t, dir).logical(t), sim
	}
	want, _ := collect(t, nil)
	for _, kind := range lettasim.FaultKinds() {
		if !kind.Recoverable() {
			continue
		}
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			got, sim := collect(t, lettasim.Faults{{Kind: kind, Rate: 0.4, After: time.Second}})
			sameSamples(t, got, want)
			if n := sim.Stats().Faults[kind]; n < 2 {
				t.Errorf("%d faults for %d samples", n, tasks)
			}
		})
	}
}

// Resetting every connection repeatedly during the run loses no sample.
func TestConnectionsCut(t *testing.T) {
	t.Parallel()
	const tasks, samples = 10, 6
	latency := latencyOf(t, "100ms..600ms")
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript(), Latency: latency})
	sends := newSendLog(sim)
	g := newGateway(t, serveHandler(t, sim, sends))
	dir := filepath.Join(t.TempDir(), "run")
	p := startProgram(t, "rollout", nil, "collect", "--server", g.url(), "--model", simModel, "--out", dir, "--quiet", "--max-in-flight", "10",
		"--tasks", writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: tasks})), "--samples", fmt.Sprint(samples), "--retries", "10")
	cut := 0
	waitFor(t, "samples in flight", func() bool { return sim.Stats().InFlight >= 10 || !p.alive() })
	for range 5 {
		time.Sleep(400 * time.Millisecond)
		if p.alive() {
			cut += g.cut()
		}
	}
	if code := p.wait(t, time.Minute); code != exit.OK {
		t.Errorf("exit code %d\n%s", code, p.said())
	}
	got := readDataset(t, dir)
	if len(got.rows) != tasks*samples || len(got.failures) != 0 {
		t.Errorf("%d samples are data and %d failed", len(got.rows), len(got.failures))
	}
	n := 0
	for _, list := range sends.all() {
		n += len(list)
	}
	if n > tasks*samples*21/20 {
		t.Errorf("%d sends for %d samples: samples in progress on the server were collected again", n, tasks*samples)
	}
	if cut < 10 {
		t.Errorf("%d connections were cut: the test has lost its teeth", cut)
	}
	t.Logf("%d samples, %d connections cut, %d sends", tasks*samples, cut, n)
}

// If a server refuses a send every 2 seconds and asks for a retry after 89 seconds, only the
// refused sends wait.
func TestRefusalsLowerLimitToOne(t *testing.T) {
	t.Parallel()
	const tasks, samples = 50, 4
	latency := latencyOf(t, "200ms..400ms")
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript(), Latency: latency})
	var last atomic.Int64
	var refused atomic.Int64
	began := time.Now()
	url := serveHandler(t, sim, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/messages") {
			now := time.Since(began).Milliseconds()
			if was := last.Load(); now-was >= 2000 && last.CompareAndSwap(was, now) {
				refused.Add(1)
				w.Header().Set("Retry-After", "89")
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
		}
		sim.ServeHTTP(w, r)
	}))
	dir := filepath.Join(t.TempDir(), "run")
	p := startProgram(t, "rollout", nil, "collect", "--server", url, "--model", simModel, "--out", dir, "--max-in-flight", "10",
		"--tasks", writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: tasks})), "--samples", fmt.Sprint(samples))
	waitFor(t, "all but the refused samples", func() bool {
		return durable(dir) >= tasks*samples-refused.Load() || !p.alive()
	})
	took := time.Since(began)
	if n := refused.Load(); n < 2 {
		t.Errorf("%d sends were refused: the test has lost its teeth", n)
	}
	for _, said := range []string{"draining", "stopping"} { // the second one does not wait for the refused sends
		_ = p.cmd.Process.Signal(syscall.SIGINT)
		waitFor(t, said, func() bool { return strings.Contains(p.said(), "rollout: "+said) || !p.alive() })
	}
	if code := p.wait(t, time.Minute); code != exit.Interrupted {
		t.Errorf("exit code %d\n%s", code, p.said())
	}
	got := readDataset(t, dir)
	if left := tasks*samples - len(got.rows); int64(left) != refused.Load() {
		t.Errorf("%d samples are left, %d were refused", left, refused.Load())
	}
	t.Logf("%d samples in %v, %d refused", len(got.rows), took.Round(time.Millisecond), refused.Load())
}

// If the server's address is unreachable for some seconds while the server keeps working, no sample
// fails, and the run reattaches to its work.
func TestServerDownAndBack(t *testing.T) {
	t.Parallel()
	const tasks, samples = 10, 8
	latency := latencyOf(t, "500ms..2s")
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript(), Latency: latency})
	sends := newSendLog(sim)
	g := newGateway(t, serveHandler(t, sim, sends))
	dir := filepath.Join(t.TempDir(), "run")
	p := startProgram(t, "rollout", nil, "collect", "--server", g.url(), "--model", simModel, "--out", dir, "--max-in-flight", "10",
		"--tasks", writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: tasks})), "--samples", fmt.Sprint(samples))
	waitFor(t, "samples in flight", func() bool { return sim.Stats().InFlight >= 10 && sim.Stats().Answered >= 10 || !p.alive() })
	g.down()
	time.Sleep(8 * time.Second)
	before := sim.Stats().Sends
	if !p.alive() {
		t.Fatalf("the run ended with exit code %d\n%s", p.code, p.said())
	}
	g.up(t)
	if code := p.wait(t, time.Minute); code != exit.OK {
		t.Errorf("exit code %d\n%s", code, p.said())
	}
	got := readDataset(t, dir)
	if len(got.rows) != tasks*samples || len(got.failures) != 0 {
		t.Errorf("%d samples are data and %d failed", len(got.rows), len(got.failures))
	}
	n := 0
	for _, list := range sends.all() {
		n += len(list)
	}
	if n > tasks*samples+3 || before > tasks*samples-20 {
		t.Errorf("%d sends for %d samples, %d of them before the server was back", n, tasks*samples, before)
	}
	t.Logf("%d samples, %d sends, %d of them before the server was back", tasks*samples, n, before)
}

// If the server is gone for good, a stop ends the run at once and keeps finished samples. The run
// resumes when there is a server again.
func TestServerGone(t *testing.T) {
	t.Parallel()
	const tasks, samples = 10, 8
	latency := latencyOf(t, "200ms..600ms")
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript(), Latency: latency})
	g := newGateway(t, serveHandler(t, sim, sim))
	dir := filepath.Join(t.TempDir(), "run")
	args := []string{
		"collect", "--server", g.url(), "--model", simModel, "--out", dir, "--max-in-flight", "10", "--quiet", "--resume",
		"--tasks", writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: tasks})), "--samples", fmt.Sprint(samples),
	}
	p := startProgram(t, "rollout", nil, args...)
	waitFor(t, "samples in flight", func() bool { return sim.Stats().InFlight >= 10 && durable(dir) >= 5 || !p.alive() })
	g.down()
	for range 2 {
		time.Sleep(time.Second)
		_ = p.cmd.Process.Signal(syscall.SIGINT)
	}
	if code := p.wait(t, 2*time.Minute); code != exit.Interrupted {
		t.Errorf("exit code %d\n%s", code, p.said())
	}
	mustRun(t, exit.OK, "verify", dir)
	if left := readDataset(t, dir); len(left.rows) < 5 || len(left.failures) > 0 {
		t.Errorf("%d samples are data and %d failed", len(left.rows), len(left.failures))
	}
	g.up(t)
	mustRun(t, exit.OK, args...)
	if got := readDataset(t, dir); len(got.rows) != tasks*samples || len(got.failures) > 0 {
		t.Errorf("after the resume %d samples are data and %d failed", len(got.rows), len(got.failures))
	}
	waitFor(t, "no agent to be left", func() bool { return sim.Stats().AgentsAlive == 0 })
	if n := sim.Stats().Sends; n > tasks*samples {
		t.Logf("%d sends for %d samples", n, tasks*samples)
	}
}

// Tasks that kill their request, like a prompt that crashes the engine, become failures and the run
// ends. When only they are left, the server looks down, but the run does not wait for it.
func TestPoison(t *testing.T) {
	t.Parallel()
	const poison, samples = 5, 2
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript()})
	url := serveHandler(t, sim, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/messages") {
			body, _ := io.ReadAll(r.Body)
			if bytes.Contains(body, []byte("poison")) {
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		sim.ServeHTTP(w, r)
	}))
	var poisoned bytes.Buffer
	for i := range poison {
		fmt.Fprintf(&poisoned, `{"id":"poison-%d","prompt":"poison"}`+"\n", i)
	}
	for name, tasks := range map[string][]byte{
		"with others": append(sim.Tasks(lettasim.TaskOptions{Scripted: 10}), poisoned.Bytes()...),
		"alone":       poisoned.Bytes(), // as after a resume
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "run")
			p := startProgram(t, "rollout", nil, "collect", "--server", url, "--model", simModel, "--out", dir, "--quiet", "--samples", fmt.Sprint(samples),
				"--tasks", writeFile(t, "tasks.jsonl", tasks), "--fail-on-error", "100%", "--max-in-flight", "8")
			if code := p.wait(t, 90*time.Second); code != exit.Failures {
				t.Errorf("exit code %d, want %d\n%s", code, exit.Failures, p.said())
			}
			got := readDataset(t, dir)
			if len(got.failures) != poison*samples || len(got.rows) != (bytes.Count(tasks, []byte("\n"))-poison)*samples {
				t.Errorf("%d samples failed and %d are data", len(got.failures), len(got.rows))
			}
		})
	}
}

// If the answers to some create requests are lost, their agents exist with unknown ids. None is
// left at the end.
func TestAgentNobodyKnows(t *testing.T) {
	t.Parallel()
	const tasks = 20
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript()})
	var creates, lost atomic.Int64
	url := serveHandler(t, sim, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && strings.Trim(r.URL.Path, "/") == "v1/agents" && creates.Add(1)%5 == 0 {
			lost.Add(1)
			sim.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		sim.ServeHTTP(w, r)
	}))
	dir := filepath.Join(t.TempDir(), "run")
	mustRun(t, exit.OK, "collect", "--server", url, "--model", simModel, "--out", dir, "--quiet",
		"--tasks", writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: tasks})))
	if s := sim.Stats(); s.AgentsAlive != 0 || lost.Load() < 3 {
		t.Errorf("%d of %d agents remain, of which %d were not reported", s.AgentsAlive, s.AgentsCreated, lost.Load())
	}
}
