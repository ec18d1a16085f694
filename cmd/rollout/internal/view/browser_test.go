package view_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

// many is the number of samples of the run with which the speed of the page is tested.
const many = 100_000

// A growing is a run that is being collected, one step after each request.
type growing struct {
	tb      testing.TB
	dir     string
	samples []*tokenize.Sample
	lock    *runfolder.Lock
	dataset *sink.Dataset // open if samples are only in the write-ahead log
	ended   chan error
	stop    func() // stops the server of the page
}

// newGrowing makes a run of 103 samples, of which 60 are committed. One of these has failed.
func newGrowing(tb testing.TB) *growing {
	tb.Helper()
	m := newMaker(tb)
	for i := range 103 {
		text := answers
		if i == 7 || i >= 100 {
			text = "A sparrow. " + answers
		}
		task := fmt.Sprintf("gsm8k-%03d", i/4)
		if i == 33 {
			m.failure(task, i%4, 4, "timeout_total", "the sample took longer than 5m")
			continue
		}
		m.sample(task, i%4, 4, new(m.rng.Float64()), m.row(chat("q"), text))
	}
	g := &growing{tb: tb, dir: filepath.Join(tb.TempDir(), "growing"), samples: m.samples}
	m.describe(g.dir)
	add(tb, g.dir, m.samples[:60])
	g.lock = must(runfolder.TakeLock(g.dir, 0o600))(tb)
	return g
}

// step is the answer to a request of the test in the browser.
func (g *growing) step(name string) error {
	switch name {
	case "samples":
		add(g.tb, g.dir, g.samples[60:100])
	case "wait":
		g.dataset, g.ended = must(sink.Create(g.dir, sink.Config{RunID: runID}))(g.tb), make(chan error, 1)
		go func() { g.ended <- g.dataset.Run(context.Background()) }()
		for _, s := range g.samples[100:] {
			if err := g.dataset.Append(context.Background(), s, func(error) {}); err != nil {
				return err
			}
		}
	case "commit":
		return errors.Join(g.dataset.Close(context.Background()), <-g.ended)
	case "retry":
		m := newMaker(g.tb)
		failed := g.samples[33]
		failed.Failures, failed.Attempt, failed.Status, failed.Reward = nil, 2, "completed", new(1.0)
		failed.Rows = []tokenize.Row{m.row(chat("q"), answers)}
		failed.Rows[0].SegmentCount = 1
		add(g.tb, g.dir, []*tokenize.Sample{failed})
	case "end":
		return g.lock.Close()
	case "stop":
		g.stop()
	}
	return nil
}

// control serves the steps of the run until the test ends, and returns the address of the server.
func (g *growing) control() string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := g.step(r.URL.Path[1:]); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}))
	g.tb.Cleanup(s.Close)
	return s.URL + "/"
}

// TestBrowser runs web/test in a browser: on a small run, a fleet, a run that is being collected, a
// run of 100,000 samples, and the page in a file. .ci/page.sh installs what it needs. SCREENSHOTS is
// a folder for pictures of all pages. With UPDATE, the pictures of the documentation are taken again.
func TestBrowser(t *testing.T) {
	t.Parallel()
	browser := os.Getenv("ROLLOUT_BROWSER")
	if browser == "" {
		t.Skip("ROLLOUT_BROWSER is not set: .ci/page.sh sets it")
	}
	small := smallRun(t)
	v := open(t, small)
	var file bytes.Buffer
	write(t, v, &file)
	out := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(out, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	grows := newGrowing(t)
	growingURL, stop := start(t, grows.dir, true)
	grows.stop = stop

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	tests := must(filepath.Glob("web/test/*.test.mjs"))(t)
	cmd := exec.CommandContext(ctx, "node", append([]string{"--test", "--test-reporter=spec", "--test-concurrency=1", "--test-timeout=180000"}, tests...)...) //nolint:gosec // the test's own program
	cmd.Env = append(os.Environ(),
		"PAGE_SMALL="+serve(t, small, false), "PAGE_FILE=file://"+out, "PAGE_FLEET="+serve(t, fleetRun(t, false), false),
		"PAGE_GROWING="+growingURL, "PAGE_CONTROL="+grows.control(), "PAGE_MANY="+serve(t, manyRun(t, many), false),
		"PAGE_PICTURES="+serve(t, pictureRun(t), false), "PICTURES="+must(filepath.Abs("../../../../testdata/pictures"))(t))
	cmd.WaitDelay = 5 * time.Second // a browser can keep the output open
	text, err := cmd.CombinedOutput()
	t.Logf("%s", text)
	if err != nil {
		t.Fatal(err)
	}
}
