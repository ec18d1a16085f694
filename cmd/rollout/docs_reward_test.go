package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// The functions and the components on the pages score a run. So do the functions of a group.
func TestRewardPage(t *testing.T) {
	t.Parallel()
	url := serveSim(t, newSim(t, lettasim.Config{InputIDs: true, Seed: 1}))
	dir := t.TempDir()
	write := func(name, text string) { noError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)) }
	python := must(filepath.Abs(findPython(t)))(t)
	noError(t, os.Symlink(python, filepath.Join(dir, "python3")))
	write("tasks.jsonl", string(newSim(t, lettasim.Config{InputIDs: true, Seed: 1}).Tasks(lettasim.TaskOptions{Scripted: 3})))
	shell(t, dir, 0, "rollout collect --server "+url+" --model "+simModel+" --tokenizer simulated --tasks tasks.jsonl --samples 2 --out run1 --quiet")

	path := "PATH='" + dir + "':\"$PATH\" "
	functions, ranks, settings := 0, 0, 0
	for _, name := range pages(t) {
		for _, f := range fences(t, name) {
			text := strings.Join(f.lines, "\n") + "\n"
			switch {
			case f.language == "py" && f.lines[0] == "def score(sample):":
				functions++
				write("score.py", text)
				write("style.py", text)
				contains(t, shell(t, dir, 0, path+"rollout rescore run1 --reward python:score.py:score 2>&1"), "6 samples: 6 scored")
			case f.language == "py" && f.lines[0] == "def rank(samples):":
				ranks++
				write("rank.py", text)
				contains(t, shell(t, dir, 0, path+"rollout rescore run1 --reward python-group:rank.py:rank 2>&1"), "6 samples: 6 scored")
			case f.language == "yaml" && strings.Contains(text, "kind: components"):
				settings++
				write("run.yaml", text)
				contains(t, shell(t, dir, 0, path+"rollout rescore run1 -c run.yaml 2>&1"), "6 samples: 6 scored")
				contains(t, shell(t, dir, 0, "rollout inspect run1 --row 0"), "correct", "format", "style")
			}
		}
	}
	if functions != 2 || ranks != 1 || settings != 1 {
		t.Errorf("the pages have %d functions, %d functions of groups and %d components, want 2, 1 and 1", functions, ranks, settings)
	}
}
