//go:build linux

package cases_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/live/enginecheck"
)

// A new server and an engine give one collection whose rows match the engine's prompts and outputs.
func TestSmoke(t *testing.T) {
	l := Start(t, Config{Password: "live password"})
	program := Build(t)
	engine := newEngine(t, l.Model)
	handle := l.Provider(t, "sglang-sim", engine.url)

	tasks := filepath.Join(t.TempDir(), "tasks.jsonl")
	noError(t, os.WriteFile(tasks, []byte(`{"id":"hi","prompt":"Hi. [script:single]"}`+"\n"), 0o666))
	dir := filepath.Join(t.TempDir(), "run")
	l.MustRun(t, exit.OK, program, "collect", "--server", l.URLs[0], "--model", handle, "--tokenizer", l.Model, "--tasks", tasks, "--samples", "2", "--out", dir)

	res := enginecheck.Compare(must(enginecheck.Read(dir))(t), engine.calls())
	if res.Wrongs > 0 || res.Rows != 2 || res.Grades["count_verified"] != 2 {
		t.Errorf("want 2 verified rows, and nothing wrong:\n%s", res)
	}
	l.NoAgents(t)
	if l.CPU() == 0 {
		t.Error("the server took no time")
	}
	fmt.Fprintf(t.Output(), "Letta took %v of CPU\n", l.CPU())
}
