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
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
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
	noError(t, g.listen(t))
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
	closed := must(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	refusing := closed.Addr().String()
	noError(t, closed.Close())
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
		dir, args := collectArgs(t, sim, serveSim(t, sim), tasks,
			"--quiet", "--max-in-flight", "12", "-c", writeFile(t, "run.yaml", []byte("server: {idle_timeout: 1s}\n")))
		mustRun(t, exit.OK, args...)
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
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript(), Latency: latencyOf(t, "100ms..600ms")})
	sends := newSendLog(sim)
	g := newGateway(t, serveHandler(t, sim, sends))
	dir, args := collectArgs(t, sim, g.url(), tasks, "--quiet", "--max-in-flight", "10", "--samples", fmt.Sprint(samples), "--retries", "10")
	p := startProgram(t, "rollout", nil, args...)
	cut := 0
	waitFor(t, "samples in flight", func() bool { return sim.Stats().InFlight >= 10 || !p.alive() })
	for range 5 {
		time.Sleep(400 * time.Millisecond)
		if p.alive() {
			cut += g.cut()
		}
	}
	p.ends(t, time.Minute, exit.OK)
	got := readDataset(t, dir)
	got.has(t, tasks*samples, 0)
	n := sends.count()
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
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript(), Latency: latencyOf(t, "200ms..400ms")})
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
	dir, args := collectArgs(t, sim, url, tasks, "--max-in-flight", "10", "--samples", fmt.Sprint(samples))
	p := startProgram(t, "rollout", nil, args...)
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
	p.ends(t, time.Minute, exit.Interrupted)
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
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript(), Latency: latencyOf(t, "500ms..2s")})
	sends := newSendLog(sim)
	g := newGateway(t, serveHandler(t, sim, sends))
	dir, args := collectArgs(t, sim, g.url(), tasks, "--max-in-flight", "10", "--samples", fmt.Sprint(samples))
	p := startProgram(t, "rollout", nil, args...)
	waitFor(t, "samples in flight", func() bool { return sim.Stats().InFlight >= 10 && sim.Stats().Answered >= 10 || !p.alive() })
	g.down()
	time.Sleep(8 * time.Second)
	before := sim.Stats().Sends
	if !p.alive() {
		t.Fatalf("the run ended with exit code %d\n%s", p.code, p.said())
	}
	g.up(t)
	p.ends(t, time.Minute, exit.OK)
	got := readDataset(t, dir)
	got.has(t, tasks*samples, 0)
	n := sends.count()
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
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript(), Latency: latencyOf(t, "200ms..600ms")})
	g := newGateway(t, serveHandler(t, sim, sim))
	dir, args := collectArgs(t, sim, g.url(), tasks, "--max-in-flight", "10", "--quiet", "--resume", "--samples", fmt.Sprint(samples))
	p := startProgram(t, "rollout", nil, args...)
	waitFor(t, "samples in flight", func() bool { return sim.Stats().InFlight >= 10 && durable(dir) >= 5 || !p.alive() })
	g.down()
	for range 2 {
		time.Sleep(time.Second)
		_ = p.cmd.Process.Signal(syscall.SIGINT)
	}
	p.ends(t, 2*time.Minute, exit.Interrupted)
	mustRun(t, exit.OK, "verify", dir)
	if left := readDataset(t, dir); len(left.rows) < 5 || len(left.failures) > 0 {
		t.Errorf("%d samples are data and %d failed", len(left.rows), len(left.failures))
	}
	g.up(t)
	mustRun(t, exit.OK, args...)
	readDataset(t, dir).has(t, tasks*samples, 0)
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
			p.ends(t, 90*time.Second, exit.Failures)
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
	_, args := collectArgs(t, sim, url, tasks, "--quiet")
	mustRun(t, exit.OK, args...)
	if s := sim.Stats(); s.AgentsAlive != 0 || lost.Load() < 3 {
		t.Errorf("%d of %d agents remain, of which %d were not reported", s.AgentsAlive, s.AgentsCreated, lost.Load())
	}
}

// If one of two servers disappears for good during a run, its samples continue on the other within
// seconds, and no sample loses a retry.
func TestSamplesMoveFromDeadServer(t *testing.T) {
	t.Parallel()
	const tasks, samples = 10, 12
	cfg := lettasim.Config{InputIDs: true, Script: killScript(), Latency: latencyOf(t, "300ms..900ms")}
	dies, stays := newSim(t, cfg), newSim(t, cfg)
	g := newGateway(t, serveSim(t, dies))
	dir := filepath.Join(t.TempDir(), "run")
	p := startProgram(t, "rollout", nil, "collect", "--server", g.url(), "--server", serveSim(t, stays), "--model", simModel, "--out", dir,
		"--max-in-flight", "6", "--retries", "0", "--samples", fmt.Sprint(samples),
		"--tasks", writeFile(t, "tasks.jsonl", dies.Tasks(lettasim.TaskOptions{Scripted: tasks})))
	waitFor(t, "samples in flight", func() bool { return dies.Stats().InFlight >= 6 && dies.Stats().Answered >= 6 || !p.alive() })
	g.down()
	gone := time.Now()
	p.ends(t, 90*time.Second, exit.OK)
	took := time.Since(gone)
	got := readDataset(t, dir)
	got.has(t, tasks*samples, 0)
	got.once(t)
	if took > time.Minute {
		t.Errorf("the run took %v more: what was at the dead server waited", took)
	}
	contains(t, p.said(), g.url()+" is down: ")
	t.Logf("%v after the server was gone", took.Round(time.Millisecond))
}

// A server run that makes no progress after a lost answer holds its slot no longer than
// server.stuck_after.
func TestStuckAfter(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true, Latency: lettasim.Latency{Low: 6 * time.Second}})
	server := sim.HTTPServer()
	inner := server.Handler
	var working sync.WaitGroup
	var sends atomic.Int64
	t.Cleanup(working.Wait)
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/messages") || sends.Add(1) > 1 {
			inner.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		unwatched := r.Clone(t.Context())
		unwatched.Body = io.NopCloser(strings.NewReader(string(body)))
		working.Go(func() { inner.ServeHTTP(httptest.NewRecorder(), unwatched) })
		time.Sleep(100 * time.Millisecond) // the server run can appear late
		panic(http.ErrAbortHandler)        // the connection is lost, and the server run continues
	})
	dir := filepath.Join(t.TempDir(), "run")
	r := mustRun(t, exit.OK, "collect", "--server", serve(t, server), "--model", simModel, "--out", dir,
		"--tasks", writeFile(t, "tasks.jsonl", []byte(`{"id":"a","prompt":"Hi."}`+"\n")),
		"-c", writeFile(t, "run.yaml", []byte("server: {stuck_after: 1s}\nrun: {preflight: connect}\n"))) // the first send belongs to the sample
	log, err := os.ReadFile(filepath.Join(dir, runfolder.LogName(1)))
	if err != nil || !strings.Contains(string(log), "made no progress for ") {
		t.Errorf("the first run was waited for: %v\n%s%s", err, log, r.stderr)
	}
}

// If the engine behind the server is down, the message blames the engine and not the server's
// address.
func TestEngineAway(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{Faults: lettasim.Faults{{Kind: lettasim.EngineDown, Rate: 1, Attempts: 99}}})
	url := serveSim(t, sim)
	r := invoke(t.Context(), "doctor", "--server", url, "--model", simModel)
	all := r.stdout + r.stderr
	if r.code != exit.Unusable || !strings.Contains(all, "the server's model engine (http://127.0.0.1:30000/generate) failed") ||
		!strings.Contains(all, "hint: the Letta server is up: check the model engine behind it") {
		t.Errorf("exit code %d\n%s", r.code, all)
	}
	if strings.Contains(all, "is the address right") {
		t.Errorf("the address of the server is blamed:\n%s", all)
	}
}

// If the engine answered the trial call and fails before the first sample, the run waits for it. A
// stream makes its trial call when the first task arrives.
func TestEngineDownAfterTheTrial(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"batch": nil, "stream": {"--stream", "--samples", "1"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript()})
			var sends atomic.Int32
			var back atomic.Bool
			url := serveHandler(t, sim, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/messages") && sends.Add(1) > 1 && !back.Load() {
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(http.StatusInternalServerError)
					_, _ = w.Write([]byte(`{"detail":"An unknown error occurred"}`))
					return
				}
				sim.ServeHTTP(w, r)
			}))
			dir := filepath.Join(t.TempDir(), "run")
			tasks := writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: 4}))
			args := []string{"collect", "--server", url, "--model", simModel, "--out", dir, "--max-in-flight", "4", "--tasks", tasks}
			p := startProgram(t, "rollout", nil, append(args, flags...)...)
			waitFor(t, "the program to see it", func() bool { return strings.Contains(p.said(), " is down: ") || !p.alive() })
			back.Store(true)
			if flags != nil && p.alive() {
				mustRun(t, exit.OK, "ctl", dir, "drain")
			}
			p.ends(t, time.Minute, exit.OK)
			readDataset(t, dir).has(t, 4, 0)
		})
	}
}

// Transient failures of the servers during the preflight are retried and do not end a run.
func TestPreflightTriesAgain(t *testing.T) {
	t.Parallel()
	reset := func(w http.ResponseWriter) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		}
	}
	status := func(code int) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { http.Error(w, `{"detail": "said by the test"}`, code) }
	}
	for _, tt := range []struct {
		name  string
		times int64 // how many creates fail
		fail  func(http.ResponseWriter)
		code  int
		again int // how often the run prints that it retries
	}{
		{"one lost connection", 1, reset, exit.OK, 1},
		{"unavailable for a moment", 2, status(http.StatusServiceUnavailable), exit.OK, 2},
		{"busy", 1, status(http.StatusTooManyRequests), exit.OK, 1},
		{"a failing server", 1, status(http.StatusInternalServerError), exit.OK, 1},
		{"a server that stays away", 9, reset, exit.Unusable, 2},
		{"not let in", 9, status(http.StatusUnauthorized), exit.Unusable, 0},
		{"a request that is refused", 9, status(http.StatusUnprocessableEntity), exit.Unusable, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			sim := newSim(t, lettasim.Config{})
			server := sim.HTTPServer()
			inner, left := server.Handler, atomic.Int64{}
			left.Store(tt.times)
			server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost && r.URL.Path == "/v1/agents/" && left.Add(-1) >= 0 {
					tt.fail(w)
					return
				}
				inner.ServeHTTP(w, r)
			})
			tasks := writeFile(t, "tasks.jsonl", []byte(`{"id":"a","prompt":"Hi."}`+"\n"))
			r := invoke(t.Context(), "collect", "--server", serve(t, server), "--model", simModel, "--tasks", tasks,
				"--out", filepath.Join(t.TempDir(), "run"), "--dry-run")
			if again := strings.Count(r.stderr, "retrying in "); r.code != tt.code || again != tt.again {
				t.Errorf("exit code %d after trying again %d times, want %d after %d\n%s", r.code, again, tt.code, tt.again, r.stderr)
			}
		})
	}
}

// Output that the engine aborted is not data, even if the server reports the end of a turn. A
// sample that is always aborted fails as infrastructure, with its tokens. Other samples are
// unaffected.
func TestAbortedIsNoData(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript(), Faults: lettasim.Faults{
		{Kind: lettasim.Abort, Aim: []lettasim.Aim{{Task: "scripted-0002", Sample: -1}}, Attempts: 99},
		{Kind: lettasim.AbortEarly, Aim: []lettasim.Aim{{Task: "scripted-0004", Sample: -1}}, Attempts: 99},
	}})
	dir, args := collectArgs(t, sim, serveSim(t, sim), 6, "--retries", "1", "--fail-on-error", "50%")
	r := mustRun(t, exit.Failures, args...)
	got := verified(t, dir)
	for _, task := range []string{"scripted-0002", "scripted-0004"} {
		id := sampleID{task, 0}
		if len(got.rows[id]) > 0 || len(got.failures[id]) != 1 || len(got.rows) != 4 {
			t.Fatalf("%d samples have rows, %s has %d rows and %d failures\n%s", len(got.rows), task, len(got.rows[id]), len(got.failures[id]), r.stderr)
		}
		f := got.failures[id][0]
		if f.Class != "aborted" || f.Status != "error" || f.Attempt < 2 || !strings.Contains(f.Error, "aborted a call") {
			t.Errorf("%s: class %s, status %s, attempt %d: %s", task, f.Class, f.Status, f.Attempt, f.Error)
		}
		if task == "scripted-0002" && len(f.OutputIDs) == 0 {
			t.Error("nothing is left of the tokens")
		}
	}
}

// Rows, summary and report agree about outputs that the engine cut, also after a tool call. The
// server sends the prompts, so nothing is rebuilt.
func TestEndsOfRows(t *testing.T) {
	t.Parallel()
	script := lettasim.Script{Calls: lettasim.Range{Min: 2, Max: 3}, Drift: 0.5, Length: 0.4}
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: script, Faults: lettasim.Faults{{Kind: lettasim.LengthCall, Rate: 0.4}}})
	dir, args := collectArgs(t, sim, serveSim(t, sim), 24, "-c", writeFile(t, "run.yaml", []byte("agent: {keep: true, tools: [add]}\n")))
	r := mustRun(t, exit.OK, args...)
	mustRun(t, exit.OK, "verify", dir)
	steps := map[string]bool{}
	length, middle := 0, 0 // samples with a truncated row; rows with an earlier output at the limit
	for id, rows := range readDataset(t, dir).rows {
		cut := false
		for _, row := range rows {
			n := len(row.FinishReasons)
			if slices.Contains(row.FinishReasons, "") || slices.Contains(row.StepIDs, "") || len(row.StepIDs) != n {
				t.Errorf("%v: calls ended with %q, steps %q", id, row.FinishReasons, row.StepIDs)
			}
			for _, step := range row.StepIDs {
				if steps[step] {
					t.Errorf("%v: step %s twice", id, step)
				}
				steps[step] = true
			}
			last := row.FinishReasons[n-1] == "length"
			if row.Truncated != last || slices.Contains(row.Flags, "length") != last || slices.Contains(row.Flags, "cut") {
				t.Errorf("%v: truncated %v, flags %q, calls ended with %q", id, row.Truncated, row.Flags, row.FinishReasons)
			}
			cut = cut || last
			if slices.Contains(row.FinishReasons[:n-1], "length") {
				middle++
			}
		}
		if cut {
			length++
		}
		if last := rows[len(rows)-1]; (last.Status == "truncated") != last.Truncated {
			t.Errorf("%v: status %s, the last row is truncated: %v", id, last.Status, last.Truncated)
		}
	}
	if length < 4 || middle < 2 {
		t.Fatalf("%d samples with a truncated row and %d rows with the limit in the middle are too few", length, middle)
	}
	if !strings.Contains(r.stderr, "at the engine's token limit") || strings.Contains(r.stderr, "max_row_tokens") {
		t.Errorf("the summary is\n%s", r.stderr)
	}
	text := mustRun(t, exit.OK, "report", dir).stdout
	if strings.Contains(text, "max_row_tokens") || !strings.Contains(text, "ended at the engine") {
		t.Errorf("the report is\n%s", text)
	}
}
