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

// recoverableFaults hit only first attempts and are short.
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

// metamorphicScript returns a script with everything that varies rows: several calls, forks,
// truncation, wrong answers.
func metamorphicScript() lettasim.Script {
	return lettasim.Script{Calls: lettasim.Range{Min: 1, Max: 4}, Drift: 0.3, Length: 0.1, Wrong: 0.3}
}

// The same samples give the same rows whatever the number in flight, the format, the shard size,
// the faults and the place of a crash. This holds because the server's answers depend only on the
// task and the sample.
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
	// A crash at each step, combined with the other variants in turn.
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
	// The other variants are compared with the first one.
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

// crash kills the program at the step. Recovery steps need an earlier kill.
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
			t.Fatalf("%s was never reached: exit code %d\n%s", step, p.code, p.said())
		}
	}
}
