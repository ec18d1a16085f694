package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/failpoint"
)

// scoredRun collects a run of tasks × samples.
func scoredRun(t *testing.T, tasks, samples int) (dir string) {
	t.Helper()
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript()})
	dir, args := collectArgs(t, sim, serveSim(t, sim), tasks, "--samples", fmt.Sprint(samples), "--reward", "exact", "--tokenizer", lettasim.ModelName, "--quiet", "--preflight", "connect")
	mustRun(t, exit.OK, args...)
	return dir
}

// A rescore with --out is killed at each step, each time that it reaches the step. The new run is absent or complete,
// and the run stays as it was. The same command then makes the new run, and removes what the killed processes left.
func TestRescoreOutKilled(t *testing.T) {
	t.Parallel()
	bin := failpointProgram(t)
	dir := scoredRun(t, 20, 2)
	out := filepath.Join(t.TempDir(), "new")
	rescore := []string{"rescore", dir, "--reward", "number", "--out", out}
	mustRun(t, exit.OK, rescore...)
	want, before := rewardsOf(t, out), treeOf(t, dir)
	noError(t, os.RemoveAll(out))
	check := func(step failpoint.Name, n int) {
		if got := rewardsOf(t, out); !maps.Equal(got, want) {
			t.Fatalf("%s:%d: rewards differ", step, n)
		}
		if left := must(os.ReadDir(filepath.Dir(out)))(t); len(left) != 1 {
			t.Fatalf("%s:%d: leftovers %v", step, n, left)
		}
		mustRun(t, exit.OK, "verify", out)
		noError(t, os.RemoveAll(out))
	}
	for _, step := range slices.Concat(failpoint.BuildNames(), failpoint.ScoreNames(), []failpoint.Name{
		failpoint.ShardCreated, failpoint.ShardWritten, failpoint.ShardSynced, failpoint.ShardVerified, failpoint.ShardRenamed, failpoint.ShardDirSynced,
		failpoint.CommitWritten, failpoint.CommitLinked, failpoint.CommitSynced,
	}) {
		n := 1
		for ; ; n++ {
			if step == failpoint.ScoresAdded && n == 2 {
				n = len(want) // in the middle is like the first one
			}
			p := startProgram(t, bin, []string{fmt.Sprintf("ROLLOUT_FAILPOINT=%s:%d", step, n)}, rescore...)
			code := p.wait(t, time.Minute)
			for name, text := range treeOf(t, dir) {
				if name != "lock" && before[name] != text {
					t.Fatalf("%s:%d: %s has changed", step, n, name)
				}
			}
			if code == exit.OK {
				check(step, n)
				break
			}
			if step == failpoint.BuildNamed {
				check(step, n)
			} else if _, err := os.Lstat(out); code != -1 || err == nil {
				t.Fatalf("%s:%d: exit code %d, %v\n%s", step, n, code, err, p.said())
			}
		}
		if n == 1 && step != failpoint.ScoresMade { // only a scores set in place has a description
			t.Errorf("%s is never reached", step)
		}
	}
}

// A rescore that continues counts the whole set, and its exit code covers the whole set.
func TestRescoreContinues(t *testing.T) {
	t.Parallel()
	bin := failpointProgram(t)
	dir := scoredRun(t, 20, 2)
	script := writeFile(t, "score.sh", []byte(`while read -r line; do
  case $line in
  *'"trial":true'*) echo '{"reward": 1}' ;;
  *'"task_id":"scripted-000'[123]'"'*) echo '{"error": "bad"}' ;;
  *'"task_id":"scripted-000'[45]'"'*) echo '{"reward": null, "details": {"error": "of the scorer itself"}}' ;;
  *'"task_id":"scripted-0006"'*) echo '{"reward": null}' ;;
  *) echo '{"reward": 0.5}' ;;
  esac
done
`))
	config := writeFile(t, "reward.yaml", []byte("reward: {kind: command, command: [sh, "+script+"], min_std: 0.1}\n"))
	rescore := []string{"rescore", dir, "-c", config}
	rate := regexp.MustCompile(` \([^)]* samples/s[^)]*\)`)
	summary := func(text string) string {
		_, text, _ = strings.Cut(text, "scores set 0001")
		return rate.ReplaceAllString(text, "")
	}
	undisturbed := mustRun(t, exit.Tolerance, rescore...)
	want := summary(undisturbed.stderr)
	if !regexp.MustCompile(`: 40 samples: \d+ scored, mean reward 0\.5, 1\d not scored, [1-9]\d* with keep=false\n.*: [56] of 40 samples could not be scored`).MatchString(want) {
		t.Fatalf("not what the scorer does: %s", undisturbed.stderr)
	}
	for _, step := range []failpoint.Name{failpoint.CommitWritten + ":2", failpoint.CommitWritten, failpoint.ShardVerified} {
		noError(t, os.RemoveAll(filepath.Join(dir, "scores")))
		startProgram(t, bin, []string{"ROLLOUT_FAILPOINT=" + string(step)}, rescore...).ends(t, time.Minute, -1)
		again := mustRun(t, exit.Tolerance, rescore...)
		_, text, _ := strings.Cut(again.stderr, "continuing scores set 0001 of ")
		if got := summary(text); got != want {
			t.Errorf("%s: %s\nwant %s", step, again.stderr, want)
		}
		if all := strings.Contains(again.stderr, " samples/s; 40 by an earlier process)"); all != (step == failpoint.CommitWritten+":2") {
			t.Errorf("%s: %s", step, again.stderr)
		}
	}
}

// If all samples of a killed run are in the write-ahead log, rescore says how to commit them.
func TestRescoreNothingCommitted(t *testing.T) {
	t.Parallel()
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript()})
	dir, args := collectArgs(t, sim, serveSim(t, sim), 10, "--tokenizer", lettasim.ModelName, "--quiet", "--preflight", "connect")
	startProgram(t, failpointProgram(t), []string{"ROLLOUT_FAILPOINT=" + string(failpoint.WALAcked)}, args...).ends(t, time.Minute, -1)
	r := mustRun(t, exit.Folder, "rescore", dir, "--reward", "number")
	want := regexp.MustCompile(`^rollout: \S+ has no committed rows yet, only \d+ samples? in the write-ahead log\nhint: resume the run, and then score it: rollout collect --resume --out \S+\n$`)
	if !want.MatchString(r.stderr) {
		t.Errorf("%q", r.stderr)
	}
	mustRun(t, exit.OK, append(args, "--resume")...)
	mustRun(t, exit.OK, "rescore", dir, "--reward", "number")
}

// A worker of a Python scorer and the processes that it started end when rollout is killed, also if they hang.
func TestRescoreKilledWorker(t *testing.T) {
	t.Parallel()
	dir := scoredRun(t, 2, 1)
	pids := filepath.Join(t.TempDir(), "pids")
	function := writeFile(t, "score.py", fmt.Appendf(nil, `import os, subprocess, time
def score(sample):
    if sample["trial"]:
        return 1
    child = subprocess.Popen(["sleep", "1000"])
    with open(%q, "a") as f:
        f.write("%%d %%d\n" %% (os.getpid(), child.pid))
    time.sleep(1000)
`, pids))
	path := os.Getenv("PATH") + string(filepath.ListSeparator) + filepath.Dir(findPython(t))
	p := startProgram(t, "rollout", []string{"PATH=" + path}, "rescore", dir, "--reward", "python:"+function+":score")
	var worker, child int
	waitFor(t, "the function", func() bool {
		b, _ := os.ReadFile(pids)
		n, _ := fmt.Sscan(string(b), &worker, &child)
		return n == 2 || !p.alive()
	})
	p.kill()
	if worker == 0 || child == 0 {
		t.Fatal(p.said())
	}
	waitDead(t, worker)
	waitDead(t, child)
	if set := must(sink.ReadScores(nil, dir, "", ""))(t); set != nil {
		t.Errorf("set %s is complete", set.Name)
	}
}
