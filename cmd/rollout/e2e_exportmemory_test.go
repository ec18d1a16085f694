package main

import (
	"fmt"
	"iter"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/model"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
)

// makeLongRun writes a run with rows of about 2,000 tokens, in groups of 8 samples.
func makeLongRun(t *testing.T, rows int) string {
	t.Helper()
	m := must(model.Load("tokens.tokenizer", lettasim.ModelName, false, nil))(t)
	prompt := must(m.Tokenizer.AppendTokens(nil, "<|im_start|>user\nAdd.<|im_end|>\n<|im_start|>assistant\n"))(t)
	answer := must(m.Tokenizer.AppendTokens(nil, strings.Repeat(" so", 1_980)+"<|im_end|>"))(t)
	row := sinktest.NewBuilder(1).Row(len(prompt), len(answer))
	row.InputIDs = append(prompt, answer...)
	one := sinktest.Rows(sinktest.NewBuilder(1).Sample(row))[0]
	dir := filepath.Join(t.TempDir(), "run")
	samples := func(yield func(*sink.StoredSample, error) bool) {
		for i := range rows {
			r := one
			r.TaskID, r.SampleIndex, r.GroupSize = fmt.Sprintf("t%d", i/8), int32(i%8), 8
			r.GroupID, r.SampleKey, r.Reward = r.TaskID, fmt.Sprintf("%032x-%d", i/8, i%8), new(float64(i%2))
			r.RolloutID = r.SampleKey + "/1"
			if !yield(r.AsSample(), nil) {
				return
			}
		}
	}
	err := runfolder.Import(dir, "made", config.ShareNone.FileMode(), nil, func(temp string) error {
		_, err := sink.Store(temp, sink.Config{RunID: "made", MaxShardBytes: 4 << 20}, iter.Seq2[*sink.StoredSample, error](samples))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// exportPeak exports the run with the program. It returns the peak of the program's memory, and its rate in rows
// per second.
func exportPeak(t *testing.T, dir, to string, rows int) (peak int64, rate float64) {
	t.Helper()
	args := []string{"export", dir, "--to", to, "-o", filepath.Join(t.TempDir(), "out")}
	switch to {
	case "atif", "hf-traces", "openai-messages":
		args = append(args, "--tokenizer", lettasim.ModelName)
	}
	began := time.Now()
	p := startProgram(t, "rollout", []string{"GOGC=25"}, args...) // GOGC keeps resident memory close to used memory
	for ; p.alive(); time.Sleep(2 * time.Millisecond) {
		peak = max(peak, resident(p.cmd.Process.Pid))
	}
	p.ends(t, time.Minute, exit.OK)
	return peak, float64(rows) / time.Since(began).Seconds()
}

// The memory of an export does not grow with the rows, except by the places of the rows, the groups and the log.
func TestGateExportMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 30 seconds: run without -short")
	}
	if raceEnabled || runtime.GOOS != "linux" {
		t.Skip("reads the memory of a process, as Linux gives it, without the race detector")
	}
	const few, many, most = 1_000, 8_000, 32 << 20 // the tokens of the other rows are 126 MB
	short, long := makeLongRun(t, few), makeLongRun(t, many)
	for _, to := range exportFormats() {
		small, _ := exportPeak(t, short, to, few)
		large, rate := exportPeak(t, long, to, many)
		t.Logf("%-16s %d rows: %.1f MB; %d rows: %.1f MB, %.0f rows/s", to, few, float64(small)/1e6, many, float64(large)/1e6, rate)
		if large > small+most {
			t.Errorf("%s: %.1f MB, want at most %.1f MB", to, float64(large)/1e6, float64(small+most)/1e6)
		}
	}
}
