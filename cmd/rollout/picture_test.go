package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/picturetest"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// TestPictureOfARow draws the picture of a row, token by token, from a recorded rollout with a tool
// call and its model's tokenizer.
func TestPictureOfARow(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true})
	tasks := regexp.MustCompile(`(?m)^.*"id":"tool",.*$`).Find(sim.Tasks(lettasim.TaskOptions{Cases: true}))
	tasks = []byte(strings.Replace(string(tasks), `{"id":"tool",`, `{"id":"tool","answer":"5",`, 1))
	dir := filepath.Join(t.TempDir(), "run1")
	mustRun(t, 0, "collect", "--server", serveSim(t, sim), "--model", simModel, "--tasks", writeFile(t, "tasks.jsonl", tasks), "--reward", "number", "--tokenizer", filepath.Join("..", "..", "testdata", "tokenizers", "qwen3"), "--out", dir, "--quiet")
	out := mustRun(t, 0, "inspect", dir, "--row", "0", "--color", "always").stdout
	out = regexp.MustCompile(`, agent agent-[0-9a-f-]+`).ReplaceAllString(out, "") // the id is random
	picturetest.Check(t, "inspect.svg", picturetest.Terminal(t, 112, "$ rollout inspect run1 --row 0\n"+strings.TrimRight(out, "\n")), *update)
}
