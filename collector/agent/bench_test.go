package agent_test

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/collector/prompt/prompttest"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/tokenize"
)

func benchLives() int {
	if testing.Short() {
		return 2
	}
	return 16
}

// benchServer is set in the process that serves BenchmarkCollect.
var benchServer = flag.String("bench.server", "", "internal: play the lives of a folder, with or without input_ids: ids=DIR or bare=DIR")

func TestMain(m *testing.M) {
	flag.Parse()
	if *benchServer != "" {
		if err := playLives(*benchServer); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return
	}
	m.Run()
}

// playLives prints its address and serves until its standard input ends.
func playLives(mode string) error {
	kind, dir, _ := strings.Cut(mode, "=")
	cases, err := lettasim.LoadCases(os.DirFS(dir), ".")
	if err != nil {
		return err
	}
	sim, err := lettasim.New(lettasim.Config{Cases: cases, InputIDs: kind == "ids"})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := sim.HTTPServer()
	fmt.Fprintln(os.Stdout, "http://"+l.Addr().String())
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); _ = s.Close() }()
	_ = s.Serve(l)
	return nil
}

// startServer serves the lives from its own process, so that its CPU and memory are not counted.
func startServer(tb testing.TB, mode string) (url string) {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.CommandContext(tb.Context(), self, "-bench.server", mode)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = stdin.Close(); _ = cmd.Wait() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		tb.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// BenchmarkCollect measures the whole path except the command, from sends over HTTP to committed
// Parquet shards, on replies with text. One case has the prompts in the turns; the other rebuilds
// them and proves them by their counts. make profile measures the command itself.
func BenchmarkCollect(b *testing.B) {
	model := prompttest.Qwen3(b)
	dir := prompttest.Write(b, benchLives())
	for _, bc := range []struct {
		road, server string
		prompts      prompt.Config
		grade        tokenize.Grade
	}{
		{"turns", "ids", prompt.Config{Force: tokenize.SourceTurns}, tokenize.Exact},
		{"rebuilt", "bare", prompt.Config{Model: &prompt.Model{Template: model.Template, Tokenizer: model.Tokenizer}}, tokenize.CountVerified},
	} {
		b.Run("road="+bc.road, func(b *testing.B) {
			client, err := letta.NewClient(letta.ClientConfig{BaseURL: startServer(b, bc.server+"="+dir), IdleConns: 8})
			if err != nil {
				b.Fatal(err)
			}
			defer client.CloseIdle()
			prompter, err := prompt.New(bc.prompts)
			if err != nil {
				b.Fatal(err)
			}
			backend, err := agent.NewBackend(client, agent.Config{Model: "sglang//models/qwen3", KeepReasoning: true, SystemText: true, Prompter: prompter})
			if err != nil {
				b.Fatal(err)
			}
			tasks := longTasks(b)
			collectLives(b, backend, tasks, bc.grade, 1) // warm up connections and caches
			b.ReportAllocs()
			b.ResetTimer()
			before := cpuTime(b)
			collectLives(b, backend, tasks, bc.grade, b.N)
			b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N)/1e6, "cpu-ms/op")
		})
	}
}

func longTasks(tb testing.TB) []*collector.Task {
	tb.Helper()
	var tasks []*collector.Task
	for name, life := range prompttest.Lives(tb, benchLives()) {
		tasks = append(tasks, &collector.Task{ID: name, Messages: []string{prompttest.Question(tb, life)}})
	}
	return tasks
}

// collectLives collects n rollouts into a new dataset and checks their grade.
func collectLives(tb testing.TB, backend *agent.Backend, tasks []*collector.Task, grade tokenize.Grade, n int) {
	tb.Helper()
	d, err := sink.Create(tb.TempDir(), sink.Config{})
	if err != nil {
		tb.Fatal(err)
	}
	crowd := sinktest.NewCrowd(d)
	c, err := collector.New(collector.Config{
		Endpoints: []collector.Endpoint{{Name: "sim", Backend: backend, MaxInFlight: 8}}, Planned: n, Sink: crowd, Require: &grade,
	})
	if err != nil {
		tb.Fatal(err)
	}
	g, ctx := errgroup.WithContext(tb.Context())
	g.Go(func() error { return d.Run(ctx) })
	runErr := c.Run(ctx, func(yield func(*collector.Task, error) bool) {
		for i := range n {
			t := *tasks[i%len(tasks)]
			t.ID = fmt.Sprintf("%s#%d", t.ID, i)
			if !yield(&t, nil) {
				return
			}
		}
	})
	crowd.Wait()
	if err := d.Close(ctx); err != nil {
		tb.Fatal(err)
	}
	if err := g.Wait(); err != nil || runErr != nil {
		tb.Fatal(runErr, err)
	}
	if s := c.Stats(); s.Committed != n || s.Failed != 0 || s.LostCalls != 0 {
		tb.Fatalf("%d of %d committed: %+v", s.Committed, n, s)
	}
}

func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
