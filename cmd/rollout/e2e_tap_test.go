package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/collector/tap"
)

type tapProcess struct {
	cmd        *exec.Cmd
	url, spool string
	stdout     bytes.Buffer
	log        string // path of its standard error
}

func startTap(t *testing.T, args ...string) *tapProcess {
	t.Helper()
	dir := t.TempDir()
	p := &tapProcess{spool: filepath.Join(dir, "spool"), log: filepath.Join(dir, "log")}
	log, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	ready := filepath.Join(dir, "ready")
	p.cmd = exec.CommandContext(t.Context(), "rollout", append([]string{"tap", "--listen", "127.0.0.1:0", "--spool", p.spool, "--ready-file", ready, "--json"}, args...)...)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait() // killed
		}
	})
	waitFor(t, "the tap", func() bool {
		b, err := os.ReadFile(ready)
		p.url = strings.TrimSpace(string(b))
		return err == nil
	})
	return p
}

func (p *tapProcess) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

func (p *tapProcess) logged(t *testing.T, text string) {
	t.Helper()
	waitFor(t, text, func() bool {
		b, err := os.ReadFile(p.log)
		return err == nil && bytes.Contains(b, []byte(text))
	})
}

func (p *tapProcess) ends(t *testing.T, code int) {
	t.Helper()
	_ = p.cmd.Wait() // the exit code is checked below
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		log, _ := os.ReadFile(p.log)
		t.Fatalf("exit code %d, want %d\n%s", got, code, log)
	}
}

func (p *tapProcess) calls(t *testing.T, n int) (calls []*tap.Call) {
	t.Helper()
	r, err := tap.OpenReader(p.spool)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a missing call would block
	defer cancel()
	for range n {
		c, err := r.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, c)
	}
	return calls
}

// With a tap between server and engine, a collection gives the usual rows, and the spool has the
// engine's ids. The engine receives the parameters of --set.
func TestTap(t *testing.T) {
	t.Parallel()
	engine, err := enginesim.New(enginesim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	e := httptest.NewServer(engine)
	defer e.Close()
	p := startTap(t, "--engine", e.URL+"/v1", "--set", "top_p=1.0", "--set", "max_new_tokens=64", "--set", "seed=5")
	sim := newSim(t, lettasim.Config{InputIDs: true, Seed: 1, Engine: p.url})
	tasks := filepath.Join(t.TempDir(), "tasks.jsonl")
	if err := os.WriteFile(tasks, sim.Tasks(lettasim.TaskOptions{Scripted: 3}), 0o600); err != nil {
		t.Fatal(err)
	}
	mustRun(t, 0, "collect", "--server", serveSim(t, sim), "--model", simModel, "--tasks", tasks, "--samples", "2", "--out", filepath.Join(t.TempDir(), "run"), "--quiet")

	for page, want := range map[string]string{"/healthz": "ok\n", "/tap/metrics": "rollout_tap_calls_total{outcome=\"kept\"}", "/tap/segments": `"segments"`} {
		res, err := http.Get(p.url + page)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("GET %s: %v\n%s", page, err, text)
		}
	}
	p.signal(t, syscall.SIGTERM)
	p.ends(t, 0)

	truth := engine.Calls()
	if len(truth) < 6 {
		t.Fatalf("the engine had %d calls", len(truth))
	}
	for i, c := range p.calls(t, len(truth)) {
		at := slices.IndexFunc(truth, func(e enginesim.Call) bool {
			return slices.Equal(e.InputIDs, c.Prompt) && slices.Equal(e.OutputIDs, c.Output) && slices.Equal([]float32(e.Logprobs), c.Logprobs)
		})
		if at < 0 {
			t.Errorf("call %d: the engine saw nothing such: %+v", i, c)
			continue
		}
		if c.Version != truth[at].Version || c.Status != 200 || c.Cut || *c.Sampling.TopP != 1 || *c.Sampling.MaxNewTokens != 64 || *c.Sampling.Seed != 5 {
			t.Errorf("call %d: %+v", i, c)
		}
		for _, told := range []string{`"top_p":1.0`, `"max_new_tokens":64`, `"sampling_seed":5`} {
			if !bytes.Contains(truth[at].Sampling, []byte(told)) {
				t.Errorf("the engine received %s, want %s", truth[at].Sampling, told)
			}
		}
		truth = slices.Delete(truth, at, at+1)
	}
}

// The first SIGTERM refuses new requests and lets open ones finish. The second one ends them.
func TestTapEnds(t *testing.T) {
	t.Parallel()
	for _, second := range []bool{false, true} {
		began, release := make(chan struct{}), make(chan struct{})
		e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			began <- struct{}{}
			select {
			case <-release:
			case <-r.Context().Done():
				return
			}
			_, _ = io.WriteString(w, `{"output_ids":[7],"meta_info":{"prompt_tokens":1}}`)
		}))
		p := startTap(t, "--engine", e.URL)
		status := make(chan int, 1) // buffered: the receiver can be gone
		ask := func(ctx context.Context) int {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/generate", strings.NewReader(`{"input_ids":[1]}`))
			if err != nil {
				t.Error(err)
				return -1
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				return 0
			}
			defer res.Body.Close()
			_, _ = io.Copy(io.Discard, res.Body)
			return res.StatusCode
		}
		go func() { status <- ask(t.Context()) }()
		<-began
		p.signal(t, syscall.SIGTERM)
		p.logged(t, "refusing new requests; waiting for 1 request")
		if got := ask(t.Context()); got != http.StatusServiceUnavailable {
			t.Errorf("a new request is answered with %d", got)
		}
		if second {
			p.signal(t, syscall.SIGTERM)
			p.ends(t, exit.Interrupted)
			if got := <-status; got == http.StatusOK {
				t.Errorf("the request that was ended was answered with %d", got)
			}
		} else {
			close(release)
			if got := <-status; got != http.StatusOK {
				t.Errorf("the open request was answered with %d", got)
			}
			p.ends(t, 0)
		}
		if c := p.calls(t, 1)[0]; c.Cut != second || len(c.Prompt) != 1 {
			t.Errorf("second %v: kept %+v", second, c)
		}
		e.Close()
	}
}
