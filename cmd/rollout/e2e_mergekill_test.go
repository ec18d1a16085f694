package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/failpoint"
)

// The program survives a kill at each step of a merge of small commits, and at the recovery step
// that keeps samples for their groups. After each kill the run verifies. A reader that knows the
// earlier log reads everything in the same order, including new data. Each sample is there once at
// the end.
func TestKilledInMerge(t *testing.T) {
	t.Parallel()
	const total, first = 30, 6 // so few that the first ones are not merged
	bin := buildProgram(t, "-tags", "failpoint")
	for _, steps := range [][]failpoint.Name{
		{failpoint.MergeStarted},
		{failpoint.MergeWritten},
		{failpoint.MergeCommitted},
		{failpoint.MergeMoving},
		{failpoint.MergeMoved},
		{failpoint.MergeCommitted, failpoint.MergeMoving}, // recovery reaches the second step
		{failpoint.MergeMoving, failpoint.MergeMoved},
		{failpoint.WALAcked + ":3", failpoint.RecoverKept, failpoint.MergeWritten},
	} {
		t.Run(fmt.Sprint(steps), func(t *testing.T) {
			t.Parallel()
			cfg := lettasim.Config{InputIDs: true, Script: killScript()}
			var err error
			if cfg.Latency, err = lettasim.ParseLatency("10ms..60ms"); err != nil {
				t.Fatal(err)
			}
			sim := newSim(t, cfg)
			given := bytes.SplitAfter(sim.Tasks(lettasim.TaskOptions{Scripted: total}), []byte("\n"))
			dir := filepath.Join(t.TempDir(), "run")
			args := []string{
				"collect", "--stream", "--resume", "--quiet", "--out", dir, "--server", serveSim(t, sim), "--model", simModel,
				"--samples", "2", "--max-in-flight", "1", "--preflight", "connect", // so the third sample is the first of a group
			}
			live := func(tasks int, step failpoint.Name) {
				t.Helper()
				cmd := exec.CommandContext(t.Context(), bin, args...)
				cmd.Env = append(os.Environ(), "ROLLOUT_FAILPOINT="+string(step))
				var stderr bytes.Buffer
				cmd.Stderr = &stderr
				in, err := cmd.StdinPipe()
				if err := errors.Join(err, cmd.Start()); err != nil {
					t.Fatal(err)
				}
				_, err = in.Write(bytes.Join(given[:tasks], nil)) // fits into a pipe
				if step == "" {
					err = errors.Join(err, in.Close())
				}
				if err != nil && !errors.Is(err, syscall.EPIPE) {
					t.Fatal(err)
				}
				late := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Signal(syscall.SIGQUIT) })
				err = cmd.Wait()
				if late.Stop(); (err == nil) != (step == "") || step != "" && cmd.ProcessState.ExitCode() != -1 {
					t.Fatalf("%s: %v\n%s", step, err, stderr.String())
				}
			}
			live(first, "")
			old, err := sink.ReadLog(dir)
			if err != nil {
				t.Fatal(err)
			}
			known := samplesOf(t, old)
			look := func(when failpoint.Name) (keys []string) {
				t.Helper()
				if again := samplesOf(t, old); !maps.Equal(rowsOf(again), rowsOf(known)) {
					t.Errorf("%s: the log of before reads %d rows, want %d as they were", when, len(again), len(known))
				}
				mustRun(t, exit.OK, "verify", dir)
				var groups sink.GroupLog
				whole := 0
				if _, err := sink.ReadLogEach(dir, func(c *sink.Commit) {
					whole += len(groups.Add(c))
					for _, s := range c.Samples {
						keys = append(keys, s.Key)
					}
				}); err != nil {
					t.Fatal(err)
				}
				if whole*2 != len(keys) {
					t.Errorf("%s: %d groups are whole, with %d samples", when, whole, len(keys))
				}
				for i, k := range old.Commits[0].Samples {
					if keys[i] != k.Key {
						t.Errorf("%s: sample %d is %s, before it was %s", when, i, keys[i], k.Key)
					}
				}
				return keys
			}
			for _, step := range steps {
				live(total, step)
				look(step)
			}
			live(total, "")
			keys := look("the end")
			slices.Sort(keys)
			if n := len(keys); n != 2*total || len(slices.Compact(keys)) != n {
				t.Errorf("%d samples are committed, want each of %d once", n, 2*total)
			}
		})
	}
}

// samplesOf returns the rows of all shards of a log, by key and segment.
func samplesOf(t *testing.T, log *sink.Log) map[string]*sink.StoredRow {
	t.Helper()
	rows := map[string]*sink.StoredRow{}
	for s := range log.Shards(sink.KindData) {
		for r, err := range log.Rows(s) {
			if err != nil {
				t.Fatal(err)
			}
			rows[fmt.Sprintf("%s/%d", r.SampleKey, r.SegmentIndex)] = r
		}
	}
	return rows
}

func rowsOf(rows map[string]*sink.StoredRow) map[string]string {
	text := make(map[string]string, len(rows))
	for key, r := range rows {
		text[key] = fmt.Sprint(r.InputIDs, r.LossMask, r.Logprobs, r.GroupID, r.SampleIndex)
	}
	return text
}
