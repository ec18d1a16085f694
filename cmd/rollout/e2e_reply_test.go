package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// Replies of 200 MB, with and without a length, as one long text or as endless arrays, each fail
// only their own sample with one line. The process stays small.
func TestHugeReplies(t *testing.T) {
	t.Parallel()
	const huge = 200 << 20
	bodies := map[string]struct{ head, fill string }{
		"text":      {`{"messages":[],"more":"`, "x"},
		"turns":     {`{"turns":[{"role":"assistant","output_ids":[`, "1,"},
		"logprobs":  {`{"logprobs":[`, "[-0.5,1,null],"},
		"nested":    {`{"messages":`, "["},
		"spaces":    {`{"messages":[],`, " "},
		"announced": {`{"messages":[],"more":"`, "x"},
	}
	if testing.Short() { // these two end early
		for _, name := range []string{"text", "turns", "logprobs", "spaces"} {
			delete(bodies, name)
		}
	}
	sim := newSim(t, lettasim.Config{InputIDs: true})
	mux := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/messages") {
			sim.ServeHTTP(w, r)
			return
		}
		body, _ := io.ReadAll(r.Body)
		for name, b := range bodies {
			if !bytes.Contains(body, []byte("[huge:"+name+"]")) {
				continue
			}
			w.Header().Set("Content-Type", "application/json")
			if name == "announced" {
				w.Header().Set("Content-Length", fmt.Sprint(huge))
			}
			_, err := io.WriteString(w, b.head)
			block := bytes.Repeat([]byte(b.fill), 1<<16)
			for n := len(b.head); n < huge && err == nil; n += len(block) {
				_, err = w.Write(block[:min(len(block), huge-n)])
			}
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		sim.ServeHTTP(w, r)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	var tasks bytes.Buffer
	for name := range bodies {
		fmt.Fprintf(&tasks, `{"id":%q,"prompt":"Add 2 and 3. [huge:%s]"}`+"\n", name, name)
	}
	fmt.Fprintln(&tasks, `{"id":"small","prompt":"Add 2 and 3."}`)
	dir := filepath.Join(t.TempDir(), "run")
	cmd := exec.CommandContext(t.Context(), "rollout", "collect", "--server", server.URL, "--model", simModel, "--out", dir,
		"--tasks", writeFile(t, "tasks.jsonl", tasks.Bytes()), "--retries", "0", "--fail-on-error", fmt.Sprint(len(bodies)), "--quiet")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	peak := peakOf(cmd.Process.Pid)
	_ = cmd.Wait() // the exit code is checked below
	most := peak()
	if code := cmd.ProcessState.ExitCode(); code != exit.Failures || withoutLateRemovals(out.String()) != "" {
		t.Errorf("exit code %d, want %d\n%s", code, exit.Failures, out.String())
	}
	mustRun(t, exit.OK, "verify", dir)
	got := readDataset(t, dir)
	if len(got.rows[sampleID{"small", 0}]) == 0 {
		t.Error("the small reply is no data")
	}
	for name := range bodies {
		failures := got.failures[sampleID{name, 0}]
		if len(failures) != 1 {
			t.Errorf("%s: %d failures", name, len(failures))
			continue
		}
		f := failures[0]
		if f.Class != "decode" || f.Error == "" || strings.Contains(f.Error, "\n") || len(f.OutputIDs) > 0 {
			t.Errorf("%s: class %s, %d tokens, error %q; want decode and one line", name, f.Class, len(f.OutputIDs), f.Error)
		}
		t.Logf("%s: %s", name, f.Error)
	}
	t.Logf("the process took %d MB at most", most>>20)
	if runtime.GOOS == "linux" && !raceEnabled && (most == 0 || most > 512<<20) {
		t.Errorf("the process took %d MB", most>>20)
	}
	if s := sim.Stats(); s.AgentsAlive != 0 {
		t.Errorf("%d agents remain", s.AgentsAlive)
	}
}
