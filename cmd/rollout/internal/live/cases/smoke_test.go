//go:build linux

package cases_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/sink"
)

// A new server and an engine give one collection whose rows match the engine's prompts and outputs.
func TestSmoke(t *testing.T) {
	program := Build(t)
	l := Start(t, Config{Password: "live password"})
	engine := newStub(t, l.Model)
	handle := l.Provider(t, "sglang-stub", engine.URL)

	tasks := filepath.Join(t.TempDir(), "tasks.jsonl")
	noError(t, os.WriteFile(tasks, []byte(`{"id":"hi","prompt":"Hi."}`+"\n"), 0o666))
	dir := filepath.Join(t.TempDir(), "run")
	l.MustRun(t, exit.OK, program, "collect", "--server", l.URLs[0], "--model", handle, "--tokenizer", l.Model, "--tasks", tasks, "--samples", "2", "--out", dir)

	log := must(sink.ReadLog(dir))(t)
	rows := 0
	for s := range log.Shards(sink.KindData) {
		for r, err := range log.Rows(s) {
			noError(t, err)
			rows++
			said := []int32{13048, 13, 151645}
			if at := len(r.InputIDs) - len(said); at < 0 || !slices.Equal(r.InputIDs[at:], said) || !engine.got(r.InputIDs[:at]) {
				t.Errorf("sample %d: the row is not what the engine saw: %v", r.SampleIndex, r.InputIDs)
			}
			if r.Verification != "count_verified" {
				t.Errorf("sample %d: %s", r.SampleIndex, r.Verification)
			}
		}
	}
	if rows != 2 {
		t.Errorf("%d rows, want 2", rows)
	}
	if left := l.Agents(t); len(left) > 0 {
		t.Errorf("agents remain: %v", left)
	}
	if l.CPU() == 0 {
		t.Error("the server took no time")
	}
	fmt.Fprintf(t.Output(), "Letta took %v of CPU\n", l.CPU())
}
