package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// mistakesFile shows typical mistakes like a terminal session: a command after $, its complete
// output, and its exit status in brackets. The files that the commands use follow.
var mistakesFile = filepath.Join("testdata", "mistakes.txtar")

// whatToDo matches an answer with a remedy.
var whatToDo = regexp.MustCompile(`\nhint: |did you mean|[:;] use |: pass |: set |: choose |must be |: export it|: lower |: run "|with spaces`)

// Each command of mistakesFile, run with the real program and servers, gives the recorded answer.
// Every answer is a few lines long and has a remedy.
func TestMistakes(t *testing.T) {
	t.Parallel()
	archive := must(txtar.ParseFile(mistakesFile))(t)
	dir := t.TempDir()
	for _, f := range archive.Files {
		path := filepath.Join(dir, f.Name)
		noError(t, os.MkdirAll(filepath.Dir(path), 0o777))
		noError(t, os.WriteFile(path, f.Data, 0o666))
	}
	// Addresses in the file, and addresses of the servers.
	var there, here []string
	hour := latencyOf(t, "1h")
	for i, cfg := range []lettasim.Config{
		{InputIDs: true},
		{},
		{InputIDs: true, Password: "secret"},
		{InputIDs: true, Latency: hour},
	} {
		sim := must(lettasim.New(cfg))(t)
		address, was := strings.TrimPrefix(serveSim(t, sim), "http://"), fmt.Sprintf("127.0.0.1:%d", 8283+i)
		there, here = append(there, was, address), append(here, address, was)
	}
	toReal, toShown := strings.NewReplacer(there...), strings.NewReplacer(append(here, dir+"/", "")...)
	command := func(line string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", toReal.Replace(line))
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "ROLLOUT_SERVER_URLS=http://"+there[1], "ROLLOUT_AGENT_MODEL="+simModel, "ROLLOUT_TASKS_FILE=tasks.jsonl", "ROLLOUT_OUTPUT_DIR=new")
		return cmd
	}
	if out, err := command("rollout collect --reward exact --out run1 --quiet").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	busy := command("exec rollout collect --server http://127.0.0.1:8286 --out busy --preflight connect --quiet")
	noError(t, busy.Start())
	t.Cleanup(func() {
		_ = busy.Process.Kill()
		_ = busy.Wait() // killed
	})
	waitFor(t, "a run that is being collected", func() bool { return runfolder.Exists(filepath.Join(dir, "busy")) })

	blocks := strings.Split(strings.TrimSpace(string(archive.Comment)), "\n\n")
	answers := make([]string, len(blocks))
	commands := 0
	for i, block := range blocks {
		line, ok := strings.CutPrefix(strings.SplitN(block, "\n", 2)[0], "$ ")
		if !ok {
			if answers[i] = block; i > 0 { // the first block describes the file
				t.Fatalf("%s: a command begins with $, and no answer has an empty line:\n%s", mistakesFile, block)
			}
			continue
		}
		commands++
		cmd := command(line)
		out, _ := cmd.CombinedOutput() // the exit code is checked below
		code, answer := cmd.ProcessState.ExitCode(), toShown.Replace(string(out))
		answer = processOf.ReplaceAllString(answer, "process 1234 …")
		answer = shardOf.ReplaceAllString(answer, "part-….parquet")
		answers[i] = fmt.Sprintf("$ %s\n%s[%d]", line, answer, code)
		switch n := strings.Count(answer, "\n"); {
		case code <= exit.Internal:
			t.Errorf("%s: exit code %d, want one for a user error\n%s", line, code, answer)
		case n > 5:
			t.Errorf("%s: %d lines are too many\n%s", line, n, answer)
		case !whatToDo.MatchString("\n" + answer):
			t.Errorf("%s: has no remedy\n%s", line, answer)
		}
		if _, err := os.Stat(filepath.Join(dir, "new")); err == nil {
			t.Fatalf("%s: a run that was refused left its folder", line)
		}
	}
	if commands < 20 {
		t.Errorf("%d mistakes, want 20", commands)
	}
	if *update {
		archive.Comment = []byte(strings.Join(answers, "\n\n") + "\n\n")
		noError(t, os.WriteFile(mistakesFile, txtar.Format(archive), 0o666))
		return
	}
	for i, block := range blocks {
		if answers[i] != block {
			t.Errorf("got:\n%s\nwant:\n%s", answers[i], block)
		}
	}
}

// Parts that change from run to run: the holder of a lock and the name of a shard.
var (
	processOf = regexp.MustCompile(`process [0-9]+ .*`)
	shardOf   = regexp.MustCompile(`part-[0-9a-f-]+\.parquet`)
)
