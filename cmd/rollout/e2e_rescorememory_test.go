package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/model"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink"
)

// makeRun writes a run with groups of 8 samples. Each sample has a prompt, and an answer with a number of words
// and then a number, which is right in every second sample.
func makeRun(t *testing.T, samples, words int) string {
	t.Helper()
	const size = 8
	dir := filepath.Join(t.TempDir(), "run")
	m := must(model.Load("tokens.tokenizer", lettasim.ModelName, false, nil))(t)
	prompt := must(m.Tokenizer.AppendTokens(nil, "<|im_start|>user\nAdd.<|im_end|>\n<|im_start|>assistant\n"))(t)
	var answers [2][]int32
	for i := range answers {
		text := strings.Repeat(" so", words) + fmt.Sprintf("\nThe answer is %d.<|im_end|>", i)
		answers[i] = must(m.Tokenizer.AppendTokens(nil, text))(t)
	}
	tasks := samples / size
	err := runfolder.Build(dir, 0o600, func(temp string) (runfolder.Info, error) {
		var lines bytes.Buffer
		for i := range tasks {
			fmt.Fprintf(&lines, "{\"id\":\"t%d\",\"messages\":[\"Add.\"],\"answer\":\"1\"}\n", i)
		}
		if err := os.WriteFile(filepath.Join(temp, runfolder.TasksFile), lines.Bytes(), 0o600); err != nil {
			return runfolder.Info{}, err
		}
		sum := sha256.Sum256(lines.Bytes())
		_, err := sink.Store(temp, sink.Config{RunID: "made", MaxShardBytes: 4 << 20}, madeSamples(tasks, size, prompt, answers))
		return runfolder.Info{
			ID: "made", Model: runfolder.DescribeModel(m), Tasks: runfolder.Tasks{SHA256: hex.EncodeToString(sum[:]), Tasks: tasks, Planned: samples},
			Config: config.Values{"tokens": {"tokenizer": json.RawMessage(`"` + lettasim.ModelName + `"`)}, "output": {"shard_bytes": json.RawMessage(`"4MiB"`)}},
		}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func madeSamples(tasks, size int, prompt []int32, answers [2][]int32) iter.Seq2[*sink.StoredSample, error] {
	row := func(answer []int32) sink.StoredRow {
		ids := append(append([]int32{}, prompt...), answer...)
		r := sink.StoredRow{
			InputIDs: ids, LossMask: make([]int8, len(ids)), Logprobs: make([]float32, len(ids)),
			TurnOffsets: []int32{0, int32(len(prompt)), int32(len(ids))}, TurnRoles: []int8{0, 1}, PromptLength: int32(len(prompt)),
			Status: "completed", StopReason: "end_turn", FinishReasons: []string{"stop"}, StepIDs: []string{""}, RunIDs: []string{},
			Verification: "exact", PromptSource: "turns", ChainKind: "main", SegmentCount: 1, Attempt: 1, GroupSize: int32(size), Flags: []string{},
		}
		for i := len(prompt); i < len(ids); i++ {
			r.LossMask[i], r.Logprobs[i] = 1, -0.5
		}
		return r
	}
	rows := [2]sink.StoredRow{row(answers[0]), row(answers[1])}
	return func(yield func(*sink.StoredSample, error) bool) {
		for n := range tasks {
			task := &collector.Task{ID: fmt.Sprintf("t%d", n), Messages: []string{"Add."}}
			group := collector.GroupID(task)
			for i := range size {
				r := rows[i%2]
				r.TaskID, r.GroupID, r.SampleKey, r.SampleIndex = task.ID, group, collector.SampleKey(task, i), int32(i)
				r.RolloutID = collector.RolloutID(r.SampleKey, 1)
				if !yield(r.AsSample(), nil) {
					return
				}
			}
		}
	}
}

// A madeRescore is how a rescore of a made run went.
type madeRescore struct {
	peak int64   // of the resident memory until the set or the new run is complete
	rate float64 // samples per second, with start and report
	cpu  float64 // seconds per sample, with the scorer's processes
}

// rescoreMade scores a made run with the program. The report, which is written afterwards, has gates of its own.
func rescoreMade(t *testing.T, dir string, samples int, args ...string) madeRescore {
	t.Helper()
	before := len(must(sink.ScoreSets(nil, dir))(t))
	began := time.Now()
	p := startProgram(t, "rollout", []string{"GOGC=25"}, append([]string{"rescore", dir}, args...)...) // GOGC keeps resident memory close to used memory
	peak := int64(0)
	for commits := 0; p.alive(); time.Sleep(2 * time.Millisecond) {
		sets := must(sink.ScoreSets(nil, dir))(t)
		if len(sets) > before {
			entries, _ := filepath.Glob(filepath.Join(dir, "scores", sets[len(sets)-1], "_commits", "0*.json"))
			if n := len(entries); n > commits {
				commits = n
				if b, _ := os.ReadFile(entries[n-1]); bytes.Contains(b, []byte(`"kind":"sealed"`)) {
					break
				}
			}
		}
		peak = max(peak, resident(p.cmd.Process.Pid))
	}
	p.ends(t, time.Minute, exit.OK)
	took, used := time.Since(began), p.cmd.ProcessState
	if want := fmt.Sprintf("%s samples: %[1]s scored, mean reward 0.5", format.Count(int64(samples))); !strings.Contains(p.said(), want) {
		t.Fatalf("no %q in %s", want, p.said())
	}
	return madeRescore{peak, float64(samples) / took.Seconds(), (used.UserTime() + used.SystemTime()).Seconds() / float64(samples)}
}

// The memory of a rescore does not grow with the samples, except by what the groups, the tasks and the shards of the
// log need, and the keys of a new run. The limits have room for the collector of garbage: two runs of this test with
// --out differ by 4 MB. A row has more than 1,000 bytes.
func TestGateRescoreMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 30 seconds: run without -short")
	}
	if raceEnabled || runtime.GOOS != "linux" {
		t.Skip("reads the memory of a process, as Linux gives it, without the race detector")
	}
	const few, many = 40_000, 200_000
	small, large := makeRun(t, few, 4), makeRun(t, many, 4)
	for _, tt := range []struct {
		name      string
		perSample int64
		args      func() []string
	}{
		{"--out", 220, func() []string { return []string{"--out", filepath.Join(t.TempDir(), "new")} }},
		{"in place", 80, func() []string { return nil }},
	} {
		args := func() []string { return append(tt.args(), "--reward", "number") }
		a, b := rescoreMade(t, small, few, args()...), rescoreMade(t, large, many, args()...)
		t.Logf("%s: %d samples: %.1f MB; %d samples: %.1f MB, %.0f samples/s", tt.name, few, float64(a.peak)/1e6, many, float64(b.peak)/1e6, b.rate)
		if most := a.peak + (many-few)*tt.perSample; b.peak > most {
			t.Errorf("%s: %.1f MB, want at most %.1f MB", tt.name, float64(b.peak)/1e6, float64(most)/1e6)
		}
	}
}

// Samples of 2,000 tokens are scored far faster than any scorer needs, also by a Python function.
func TestGateRescoreRate(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("measures: run without -short and -race")
	}
	const samples = 4_000
	dir := makeRun(t, samples, 1_980)
	function := writeFile(t, "score.py", []byte(`import re
def score(sample):
    numbers = re.findall(r"-?[0-9]+", sample["output"])
    return float(bool(numbers) and numbers[-1] == sample["answer"])
`))
	t.Setenv("PATH", os.Getenv("PATH")+string(filepath.ListSeparator)+filepath.Dir(findPython(t)))
	for _, kind := range []string{"number", "python:" + function + ":score"} {
		best := madeRescore{}
		for range 2 {
			if got := rescoreMade(t, dir, samples, "--reward", kind); got.rate > best.rate {
				best = got
			}
		}
		t.Logf("%.10s: %.0f samples of 2,000 tokens per second, with start and report; %.2f ms of CPU per sample", kind, best.rate, 1e3*best.cpu)
		if best.rate < 500 {
			t.Errorf("%.10s: %.0f samples per second, want 500", kind, best.rate)
		}
	}
}
