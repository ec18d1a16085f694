package letta

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/tokenizetest"
)

// TestMain also runs the server of BenchmarkSend in its own process, to exclude its memory.
func TestMain(m *testing.M) {
	if os.Getenv(benchServerEnv) != "" {
		benchServer()
		return
	}
	m.Run()
}

const benchServerEnv = "LETTA_BENCH_SERVER"

// benchServer prints its address and serves until its standard input ends.
func benchServer() {
	body := tokenizetest.Reply(1, tokenizetest.Options{Tokens: 20_000, Turns: 11, Text: true})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		time.Sleep(50 * time.Millisecond) // model time
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body)
	}), ReadHeaderTimeout: time.Minute}
	fmt.Fprintln(os.Stderr, "http://"+l.Addr().String())
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); _ = s.Close() }()
	_ = s.Serve(l)
}

func startBenchServer(tb testing.TB) string {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.CommandContext(tb.Context(), self)
	cmd.Env = append(os.Environ(), benchServerEnv+"=1")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = stdin.Close(); _ = cmd.Wait() })
	line, err := bufio.NewReader(stderr).ReadString('\n')
	if err != nil {
		tb.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// sendMany reads n answers, inFlight at a time, and returns their bytes.
func sendMany(ctx context.Context, c *Client, n, inFlight int) (int64, error) {
	var left, total atomic.Int64
	left.Store(int64(n))
	arenas := make(chan *tokenize.Reply, inFlight)
	g, ctx := errgroup.WithContext(ctx)
	for range inFlight {
		g.Go(func() error {
			for left.Add(-1) >= 0 {
				var reply *tokenize.Reply
				take := func() *tokenize.Reply {
					select {
					case reply = <-arenas:
					default:
						reply = new(tokenize.Reply)
					}
					return reply
				}
				request := &LettaRequest{Messages: InputMessages{UserText("hi")}}
				if _, err := c.SendWith(ctx, SendOptions{AgentID: "agent-1", Request: request, Reply: take}); err != nil {
					return err
				}
				total.Add(reply.Bytes)
				arenas <- reply
			}
			return nil
		})
	}
	err := g.Wait()
	return total.Load(), err
}

// peakMB returns the peak resident size of this process since resetPeak, in MB, or 0 if unknown.
func peakMB() float64 {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), "VmHWM:")
	var kb float64
	_, _ = fmt.Sscanf(rest, "%f", &kb)
	return kb / 1024
}

func resetPeak() { _ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0o200) }

// BenchmarkSend measures sends to a server process, with and without a bound on reads.
func BenchmarkSend(b *testing.B) {
	url := startBenchServer(b)
	for _, inFlight := range []int{64, 512} {
		if testing.Short() && inFlight > 64 {
			continue // connecting alone reads half a GB
		}
		b.Run(fmt.Sprintf("inflight=%d/body=1MB", inFlight), func(b *testing.B) {
			c, err := NewClient(ClientConfig{BaseURL: url, IdleConns: inFlight})
			if err != nil {
				b.Fatal(err)
			}
			defer c.CloseIdle()
			if _, err := sendMany(b.Context(), c, inFlight, inFlight); err != nil { // connect
				b.Fatal(err)
			}
			runtime.GC()
			resetPeak()
			b.ReportAllocs()
			b.ResetTimer()
			start := time.Now()
			bytes, err := sendMany(b.Context(), c, b.N, inFlight)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(bytes / int64(b.N))
			b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "replies/s")
			b.ReportMetric(peakMB(), "peak-MB")
		})
	}
}

// TestGateSendMemory checks that 64 answers of 1 MB need the memory of the few being read.
func TestGateSendMemory(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector empties pools at random")
	}
	const slots, inFlight = 2, 64
	body := tokenizetest.Reply(1, tokenizetest.Options{Tokens: 25_000, Turns: 7})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }))
	defer s.Close()
	c, err := NewClient(ClientConfig{BaseURL: s.URL, ReadBytes: slots * chunkedBytes, IdleConns: inFlight})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdle()
	if _, err := sendMany(t.Context(), c, inFlight, inFlight); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const n = 512
	if _, err := sendMany(t.Context(), c, n, inFlight); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	// The server is in this process too. One arena per request in flight would cost about 25 KB
	// per send, one body per request 1 MB.
	const most = 100_000
	if got := (after.TotalAlloc - before.TotalAlloc) / n; got > most {
		t.Errorf("a send with an answer of %d bytes allocates %d bytes, want at most %d", len(body), got, most)
	} else {
		t.Logf("a send with an answer of %d bytes allocates %d bytes", len(body), got)
	}
}
