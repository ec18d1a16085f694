package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink/failpoint"
)

// recoverableFaults hit first attempts only, and are over quickly.
func recoverableFaults(rate float64) lettasim.Faults {
	var faults lettasim.Faults
	for _, kind := range []lettasim.FaultKind{
		lettasim.EngineDown, lettasim.DatabaseFull, lettasim.Unavailable, lettasim.Reset, lettasim.Drop, lettasim.Truncated,
		lettasim.CreateFails, lettasim.DeleteFails,
	} {
		faults = append(faults, lettasim.Fault{Kind: kind, Rate: rate})
	}
	return faults
}

// metamorphicScript has everything that makes rows differ: several calls, forks,
// truncation, wrong answers.
func metamorphicScript() lettasim.Script {
	return lettasim.Script{Calls: lettasim.Range{Min: 1, Max: 4}, Drift: 0.3, Length: 0.1, Wrong: 0.3}
}

// TestMetamorphic collects the same samples in many ways. What the server answers is a
// function of the task and the sample, so the rows are the same whatever the number
// in flight, the format, the size of shards, what went wrong on the way and where the program was killed.
func TestMetamorphic(t *testing.T) {
	t.Parallel()
	const tasks, samples = 8, 3
	workers := []int{1, 8, 64}
	if testing.Short() {
		workers = []int{8}
	}
	type variant struct {
		name         string
		workers      int
		format, size string
		faults       bool
		crash        failpoint.Name // empty: none
	}
	var variants []variant
	for _, faults := range []bool{false, true} {
		for _, format := range []string{"parquet", "arrow"} {
			for _, size := range []string{"4KiB", "256MiB"} {
				for _, n := range workers {
					variants = append(variants, variant{name: fmt.Sprintf("faults=%v/format=%s/shard=%s/workers=%d", faults, format, size, n), workers: n, format: format, size: size, faults: faults})
				}
			}
		}
	}
	// A crash at each step, with the other ways in turn.
	bin := buildProgram(t, "-tags", "failpoint")
	plain := len(variants)
	for i, name := range failpoint.Names() {
		v := variants[i*5%plain]
		v.name, v.crash = v.name+"/crash="+string(name), name
		variants = append(variants, v)
	}
	collect := func(t *testing.T, v variant) map[sampleID]string {
		t.Helper()
		cfg := lettasim.Config{InputIDs: true, Script: metamorphicScript()}
		if v.faults {
			cfg.Faults = recoverableFaults(0.05)
		}
		sim := newSim(t, cfg)
		dir := filepath.Join(t.TempDir(), "run")
		args := []string{
			"collect", "--resume", "--server", serveSim(t, sim), "--model", simModel, "--out", dir, "--quiet",
			"--tasks", writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: tasks})), "--samples", fmt.Sprint(samples),
			"--max-in-flight", fmt.Sprint(v.workers), "--format", v.format, "--reward", "number", "--retries", "6",
			"-c", writeFile(t, "run.yaml", []byte("output: {messages: true, shard_bytes: "+v.size+"}\n")),
		}
		crash(t, bin, v.crash, args)
		mustRun(t, exit.OK, args...)
		mustRun(t, exit.OK, "verify", dir)
		d := readDataset(t, dir)
		for key, n := range d.keys() {
			if n != 1 {
				t.Errorf("sample %s is in the commit log %d times", key, n)
			}
		}
		hit := int64(0)
		for _, n := range sim.Stats().Faults {
			hit += n
		}
		if v.faults != (hit > 3) {
			t.Errorf("%d faults: the test has lost its teeth", hit)
		}
		if commits := len(d.log.Commits); v.size == "4KiB" && commits < 2 || v.size != "4KiB" && v.crash == "" && commits > 1 {
			t.Errorf("%d commits with shards of %s", commits, v.size)
		}
		return d.logical(t)
	}
	// The first way is what the others are compared with.
	want := collect(t, variants[0])
	if len(want) != tasks*samples {
		t.Fatalf("%d samples, want %d", len(want), tasks*samples)
	}
	for _, v := range variants[1:] {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			sameSamples(t, collect(t, v), want)
		})
	}
}

// crash has the program killed at the step; those of recovery need a kill before.
func crash(t *testing.T, bin string, at failpoint.Name, args []string) {
	t.Helper()
	steps := []string{string(at)}
	switch {
	case at == "":
		return
	case strings.HasPrefix(string(at), "recover."):
		steps = []string{string(failpoint.WALSynced), string(at)}
	}
	for _, step := range steps {
		if p := startProgram(t, bin, []string{"ROLLOUT_FAILPOINT=" + step}, args...); p.wait(t, time.Minute) != -1 {
			t.Fatalf("%s was never come to: exit code %d\n%s", step, p.code, p.said())
		}
	}
}
