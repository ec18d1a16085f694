package main

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink"
)

const simModel = "sglang//models/qwen3"

var exchangesDir = filepath.Join("..", "..", "testdata", "letta")

type ran struct {
	code           int
	stdout, stderr string
}

func invoke(ctx context.Context, args ...string) ran {
	var stdout, stderr bytes.Buffer
	code := run(ctx, args, strings.NewReader(""), &stdout, &stderr, func(string) string { return "" })
	return ran{code, stdout.String(), stderr.String()}
}

// mustRun is like invoke, but fails the test unless the program exits with code.
func mustRun(t *testing.T, code int, args ...string) ran {
	t.Helper()
	r := invoke(t.Context(), args...)
	if r.code != code {
		t.Fatalf("rollout %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), r.code, code, r.stdout, r.stderr)
	}
	return r
}

// withoutLateRemovals removes messages about agents whose removal timed out, which happens on a
// loaded machine. The end of the run removes such agents, so a test that uses this also checks that
// no agent is left.
func withoutLateRemovals(said string) string { return lateRemoval.ReplaceAllString(said, "") }

var lateRemoval = regexp.MustCompile(`(?m)^rollout: agent of .* not removed: .*deadline exceeded; .*\n`)

func serveSim(t *testing.T, sim *lettasim.Server) (url string) {
	t.Helper()
	return serve(t, sim.HTTPServer())
}

func serve(t *testing.T, server *http.Server) (url string) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: server}
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

func latencyOf(t *testing.T, text string) lettasim.Latency {
	t.Helper()
	l, err := lettasim.ParseLatency(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func newSim(t *testing.T, cfg lettasim.Config) *lettasim.Server {
	t.Helper()
	cases, err := lettasim.LoadCases(os.DirFS(exchangesDir), ".")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Cases = cases
	sim, err := lettasim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return sim
}

// randomOf returns the random numbers of a test. ROLLOUT_SEED repeats an earlier test.
func randomOf(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("ROLLOUT_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("ROLLOUT_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func writeFile(t *testing.T, name string, body []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, body, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

type sampleID struct {
	task  string
	index int32
}

// A readBack is the whole content of a run's folder, as our own readers return it.
type readBack struct {
	log      *sink.Log
	rows     map[sampleID][]*sink.StoredRow // by segment
	failures map[sampleID][]*sink.StoredFailure
}

func readDataset(t *testing.T, dir string) *readBack {
	t.Helper()
	log, err := sink.ReadLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	d := &readBack{log: log, rows: map[sampleID][]*sink.StoredRow{}, failures: map[sampleID][]*sink.StoredFailure{}}
	for s := range log.Shards(sink.KindData) {
		for r, err := range log.Rows(s) {
			if err != nil {
				t.Fatal(err)
			}
			id := sampleID{r.TaskID, r.SampleIndex}
			d.rows[id] = append(d.rows[id], r)
		}
	}
	for s := range log.Shards(sink.KindFailures) {
		for f, err := range log.Failures(s) {
			if err != nil {
				t.Fatal(err)
			}
			id := sampleID{f.TaskID, f.SampleIndex}
			d.failures[id] = append(d.failures[id], f)
		}
	}
	for _, rows := range d.rows {
		slices.SortFunc(rows, func(a, b *sink.StoredRow) int { return int(a.SegmentIndex - b.SegmentIndex) })
	}
	return d
}

func (d *readBack) keys() map[string]int {
	keys := map[string]int{}
	for i := range d.log.Commits {
		for _, s := range d.log.Commits[i].Samples {
			keys[s.Key]++
		}
	}
	return keys
}
