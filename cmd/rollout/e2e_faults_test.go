package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
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

// A run survives an unsteady network: every connection is reset repeatedly, and then the server's
// address is unreachable for some seconds while the server keeps working. No sample fails, and the
// run reattaches to its work. If the server is gone for good, a stop ends the run at once and keeps
// finished samples. The run resumes when there is a server again.
func TestUnsteadyNetwork(t *testing.T) {
	t.Parallel()
	const tasks, samples, total = 10, 14, 10 * 14
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript(), Latency: latencyOf(t, "200ms..1500ms")})
	sends := newSendLog(sim)
	g := newGateway(t, serveHandler(t, sim, sends))
	dir, args := collectArgs(t, sim, g.url(), tasks, "--max-in-flight", "10", "--quiet", "--resume", "--samples", fmt.Sprint(samples), "--retries", "10")
	p := startProgram(t, "rollout", nil, args...)
	answered := func(n int64) {
		t.Helper()
		waitFor(t, "answers, and samples in flight", func() bool {
			s := sim.Stats()
			return s.InFlight >= 5 && s.Answered >= n || !p.alive()
		})
		if !p.alive() {
			t.Fatalf("the run ended with exit code %d\n%s", p.code, p.said())
		}
	}
	answered(0)
	cut := 0
	for range 5 {
		time.Sleep(400 * time.Millisecond)
		cut += g.cut()
	}
	answered(20)
	g.down()
	time.Sleep(8 * time.Second)
	before := sends.count()
	noError(t, g.listen(t))
	answered(60)
	if again := sends.count() - len(sends.all()); cut < 10 || before > total-40 || again > total/20+3 {
		t.Errorf("%d sends were repeated after %d cuts and an outage, with %d sends before its end", again, cut, before)
	}
	g.down()
	for range 2 {
		time.Sleep(time.Second)
		_ = p.cmd.Process.Signal(syscall.SIGINT)
	}
	p.ends(t, 2*time.Minute, exit.Interrupted)
	if left := verified(t, dir); len(left.rows) < 40 || len(left.failures) > 0 {
		t.Errorf("%d samples are data and %d failed", len(left.rows), len(left.failures))
	}
	noError(t, g.listen(t))
	mustRun(t, exit.OK, args...)
	readDataset(t, dir).has(t, total, 0)
	waitFor(t, "no agent to be left", func() bool { return sim.Stats().AgentsAlive == 0 })
	t.Logf("%d samples, %d connections cut, %d sends, %d of them before the server was back", total, cut, sends.count(), before)
}

// A server run that makes no progress after a lost answer holds its slot no longer than
// server.stuck_after.
func TestStuckAfter(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true, Latency: lettasim.Latency{Low: 6 * time.Second}})
	g := newGateway(t, serveSim(t, sim))
	dir, args := collectArgs(t, sim, g.url(), 1, "-c", writeFile(t, "run.yaml", []byte("server: {stuck_after: 1s}\nrun: {preflight: connect}\n")))
	p := startProgram(t, "rollout", nil, args...)
	waitFor(t, "the send", func() bool { return sim.Stats().InFlight > 0 || !p.alive() })
	g.cut() // the server run continues
	p.ends(t, time.Minute, exit.OK)
	contains(t, string(must(os.ReadFile(filepath.Join(dir, runfolder.LogName(1))))(t)), "made no progress for ")
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
				if asks(r, onSend) && sends.Add(1) > 1 && !back.Load() {
					text(http.StatusInternalServerError, `{"detail":"An unknown error occurred"}`)(w, r)
					return
				}
				sim.ServeHTTP(w, r)
			}))
			dir, args := collectArgs(t, sim, url, 4, append(flags, "--max-in-flight", "4")...)
			p := startProgram(t, "rollout", nil, args...)
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
	reset := onConn(func(conn net.Conn) { _ = conn.(*net.TCPConn).SetLinger(0) })
	status := func(code int) http.HandlerFunc { return text(code, `{"detail": "said by the test"}`) }
	for _, tt := range []struct {
		name  string
		times int64 // how many creates fail
		fail  http.HandlerFunc
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
			var creates atomic.Int64
			url := serveHandler(t, sim, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if asks(r, onCreate) && creates.Add(1) <= tt.times {
					tt.fail(w, r)
					return
				}
				sim.ServeHTTP(w, r)
			}))
			_, args := collectArgs(t, sim, url, 1, "--dry-run")
			r := invoke(t.Context(), args...)
			if again := strings.Count(r.stderr, "retrying in "); r.code != tt.code || again != tt.again {
				t.Errorf("exit code %d after trying again %d times, want %d after %d\n%s", r.code, again, tt.code, tt.again, r.stderr)
			}
		})
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
