package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
	"github.com/rollout-rl/rollout/tokenize/tokenizetest"
)

// With a reward command that hangs after the trial sample and has started another program, the
// drain reports that it waits for scores. The second interrupt ends both programs and the run
// within seconds, and the unscored samples remain.
func TestHungScorer(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript()})
	pids := filepath.Join(t.TempDir(), "pids")
	config := fmt.Sprintf("reward: {kind: command, timeout: 10m, processes: 2, command: [sh, %q]}\n", writeFile(t, "score.sh", []byte(`read -r line
case $line in *'"trial":true'*)
	echo '{"reward":0}'
	read -r line
esac
sleep 600 & echo $$ $! >>`+pids+`; sleep 600
`)))
	dir, args := collectArgs(t, sim, serveSim(t, sim), 4, "-c", writeFile(t, "run.yaml", []byte(config)), "--max-in-flight", "4")
	p := startProgram(t, "rollout", nil, args...)
	waitFor(t, "all samples to be scored", func() bool {
		b, _ := os.ReadFile(pids)
		return strings.Count(string(b), "\n") == 2 && sim.Stats().Answered >= 4 && sim.Stats().InFlight == 0 || !p.alive()
	})
	waitFor(t, "the samples to come from the reply to the score", func() bool {
		_ = p.cmd.Process.Signal(syscall.SIGUSR1)
		time.Sleep(50 * time.Millisecond)
		said := p.said()
		return strings.Count(said[max(strings.LastIndex(said, "rollout: status of run "), 0):], ": score for ") == 4 || !p.alive()
	})
	p.signal(t, syscall.SIGINT, "draining: waiting at most 5m00s for 4 samples being scored")
	began := time.Now()
	p.signal(t, syscall.SIGINT, "stopping: interrupted")
	p.ends(t, 90*time.Second, exit.Interrupted)
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %v to stop", took)
	}
	b := must(os.ReadFile(pids))(t)
	for word := range strings.FieldsSeq(string(b)) {
		var pid int
		must(fmt.Sscan(word, &pid))(t)
		waitDead(t, pid)
	}
	if got := readDataset(t, dir); len(got.rows)+len(got.failures) != 0 {
		t.Errorf("%d samples are data and %d failed, want all to remain", len(got.rows), len(got.failures))
	}
}

// waitDead waits until a process has ended. It does not have to be a child of this one.
func waitDead(t *testing.T, pid int) {
	t.Helper()
	waitFor(t, fmt.Sprintf("process %d to end", pid), func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || err == nil && strings.Contains(string(stat), ") Z ")
	})
}

// rewardCase returns a recorded rollout in which the model answers text to a message that names the
// case. stop is its stop reason.
func rewardCase(t *testing.T, name, text, stop string) []byte {
	t.Helper()
	raw := must(tokenizetest.Gunzip(filepath.Join("testdata", "rewards", "rt-contains.json.gz")))(t)
	tok := bpetest.Tokenizer(t, "qwen3")
	end := "<|im_end|>"
	if stop != "end_turn" {
		end = ""
	}
	ids := must(tok.AppendTokens(nil, text+end))(t)
	var life map[string]any
	noError(t, json.Unmarshal([]byte(strings.ReplaceAll(string(raw), "[case:single]", "[case:"+name+"]")), &life))
	at := func(v any, path ...any) map[string]any {
		for _, key := range path {
			switch key := key.(type) {
			case string:
				v = v.(map[string]any)[key]
			case int:
				v = v.([]any)[key]
			}
		}
		return v.(map[string]any)
	}
	life["case"] = name
	body := at(life, "exchanges", 0, "response", "body")
	at(body, "messages", 0)["content"] = text
	turn := at(body, "turns", 0)
	var logprobs []any
	for _, id := range ids {
		logprobs = append(logprobs, []any{-0.5, id, nil})
	}
	turn["content"], turn["output_ids"], turn["output_token_logprobs"] = text, ids, logprobs
	at(body, "stop_reason")["stop_reason"] = stop
	at(body, "usage")["completion_tokens"] = len(ids)
	at(life, "exchanges", 0, "runs", 0, "run")["stop_reason"] = stop
	step := at(life, "exchanges", 0, "runs", 0, "steps", 0)
	step["completion_tokens"], step["stop_reason"] = len(ids), stop
	return must(json.Marshal(life))(t)
}

// A said is the model's answer in a case, its stop reason, and the answer of the task.
type said struct{ name, text, stop, answer string }

func serveSaid(t *testing.T, all []said) (sim *lettasim.Server, url string, lines []byte) {
	t.Helper()
	lives, answers := fstest.MapFS{}, map[string]string{}
	for _, c := range all {
		lives[c.name+".json"] = &fstest.MapFile{Data: rewardCase(t, c.name, c.text, c.stop)}
		answers[c.name] = c.answer
	}
	sim = must(lettasim.New(lettasim.Config{InputIDs: true, Cases: must(lettasim.LoadCases(lives, "."))(t)}))(t)
	for line := range bytes.Lines(sim.Tasks(lettasim.TaskOptions{Cases: true})) {
		var task map[string]any
		noError(t, json.Unmarshal(line, &task))
		task["answer"] = answers[fmt.Sprint(task["id"])]
		lines = append(lines, asText(t, task)...)
	}
	return sim, serveSim(t, sim), lines
}

// A reward scores the answer without the reasoning.
func TestThoughtsAreNotScored(t *testing.T) {
	t.Parallel()
	const thought = "<think>\nIs it 42? No, I think it is 41.\n</think>\n\n"
	sim, url, lines := serveSaid(t, []said{
		{"said", thought + "The answer is 41.", "end_turn", "41"},
		{"thought", thought + "The answer is 41.", "end_turn", "42"},
		{"quoted", "<think>\nHm.\n</think>\n\nA thought ends with </think>, and the answer is 41.", "end_turn", "ends with </think>, and the answer is 41."},
		{"twice", thought + "Or?\n<think>\n42\n</think>\n\n41", "end_turn", "42"},
		{"cut", "<think>\nIs it 42? It is 42, because", "max_tokens_exceeded", "42"},
		{"plain", "The answer is 42.", "end_turn", "42"},
	})
	rewards := func(config string, args ...string) map[string]float64 {
		t.Helper()
		dir, args := collectTasks(t, url, lines, append(args, "--quiet", "-c", writeFile(t, "run.yaml", []byte(config)))...)
		mustRun(t, exit.OK, args...)
		out := map[string]float64{}
		for id, rows := range readDataset(t, dir).rows {
			if rows[0].Reward == nil {
				t.Errorf("%s: %s has no reward", config, id.task)
				continue
			}
			out[id.task] = *rows[0].Reward
		}
		return out
	}
	want := map[string]float64{"said": 1, "thought": 0, "quoted": 1, "twice": 0, "cut": 0, "plain": 1}
	for _, args := range [][]string{nil, {"--tokenizer", bpetest.Path("qwen3")}} {
		if got := rewards("reward: {kind: contains}\n", args...); !maps.Equal(got, want) {
			t.Errorf("%v: rewards %v, want %v", args, got, want)
		}
	}
	want = map[string]float64{"said": 1, "thought": 0, "twice": 0, "cut": 0, "plain": 1}
	if got := rewards("reward: {kind: number}\n", "--skip-bad-tasks"); !maps.Equal(got, want) {
		t.Errorf("numbers: rewards %v, want %v", got, want)
	}
	want = map[string]float64{"said": 1, "thought": 1, "quoted": 1, "twice": 1, "cut": 1, "plain": 1}
	if got := rewards("reward: {kind: contains, include_reasoning: true}\n"); !maps.Equal(got, want) {
		t.Errorf("with the reasoning: rewards %v, want %v", got, want)
	}

	if testing.Short() {
		return // the rest needs a Python
	}
	// The program of the page, verbatim.
	_, code, found := strings.Cut(page(t, "collector/reward/README.md"), "```py\nimport json\n")
	if code, _, _ = strings.Cut("import json\n"+code, "```"); !found {
		t.Fatal("the page of rewards has no program")
	}
	scorer := func(code string) string {
		return fmt.Sprintf("reward: {kind: command, command: [%q, %q]}\n", findPython(t), writeFile(t, "score.py", []byte(code)))
	}
	want = map[string]float64{"said": 1, "thought": 0, "quoted": 1, "twice": 0, "cut": 0, "plain": 1}
	if got := rewards(scorer(code)); !maps.Equal(got, want) {
		t.Errorf("the program of the page: rewards %v, want %v", got, want)
	}
	// A bug in the scorer causes one line of output.
	slip := strings.Replace(code, `sample["answer"]`, `sample["metadata"]["difficulty"]`, 1)
	dir, args := collectTasks(t, url, lines, "-c", writeFile(t, "run.yaml", []byte(scorer(slip))))
	before := sim.Stats().Sends
	r := mustRun(t, exit.Usage, args...)
	if n := strings.Count(r.stderr, "rollout: "); n != 1 || !strings.Contains(r.stderr, "exited without answering: exit status 1: TypeError: 'NoneType' object is not subscriptable\n") {
		t.Errorf("a scorer error is reported in %d lines:\n%s", n, r.stderr)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || sim.Stats().Sends != before {
		t.Errorf("the run started: %v, %d sends", err, sim.Stats().Sends-before)
	}
}
