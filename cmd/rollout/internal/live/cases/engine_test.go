//go:build linux

package cases_test

import (
	"bufio"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/live/enginecheck"
	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
)

type engine struct {
	program, model, log, url string
	args                     []string // more of its flags
	cmd                      *exec.Cmd
}

var engineProgram = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "enginesim-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "enginesim")
	cmd := exec.Command("go", "build", "-o", path, "github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim/cmd/enginesim")
	cmd.Stderr = os.Stderr
	return path, cmd.Run()
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := engineProgram(); err == nil && path != "" {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code) //nolint:forbidigo // this is the test's main
}

func newEngine(t *testing.T, model string, args ...string) *engine {
	t.Helper()
	program := must(engineProgram())(t)
	e := &engine{program: program, model: model, args: args, log: filepath.Join(t.TempDir(), "calls.jsonl")}
	e.start(t)
	t.Cleanup(func() { e.kill(t) })
	return e
}

// start starts the engine; after a restart, on the same port.
func (e *engine) start(t *testing.T) {
	t.Helper()
	listen := "127.0.0.1:0"
	if e.url != "" {
		listen = strings.TrimPrefix(e.url, "http://")
	}
	args := []string{"--attached", "--tokenizer", e.model, "--listen", listen, "--log", e.log, "--max-model-len", "24000", "--weight-version", "3"}
	e.cmd = exec.Command(e.program, append(args, e.args...)...)
	e.cmd.Stderr = os.Stderr
	if _, err := e.cmd.StdinPipe(); err != nil { // the engine ends with this pipe, however this process ends
		t.Fatal(err)
	}
	out := must(e.cmd.StdoutPipe())(t)
	noError(t, e.cmd.Start())
	line := must(bufio.NewReader(out).ReadString('\n'))(t)
	e.url = strings.TrimSpace(line)
}

func (e *engine) kill(t *testing.T) {
	t.Helper()
	if e.cmd == nil {
		return
	}
	noError(t, e.cmd.Process.Kill())
	_ = e.cmd.Wait() // killed
	e.cmd = nil
}

func (e *engine) calls(t *testing.T) []enginesim.Call {
	t.Helper()
	calls := must(enginecheck.ReadCalls(e.log))(t)
	return calls
}

func (e *engine) setVersion(t *testing.T, version string) {
	t.Helper()
	req := must(http.NewRequestWithContext(t.Context(), http.MethodPost, e.url+"/update_weight_version", strings.NewReader(`{"new_version":"`+version+`"}`)))(t)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
}
