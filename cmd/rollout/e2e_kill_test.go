package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/sink"
)

// If the process is killed during a run, in both formats, its commits are whole. Finished samples
// wait in the write-ahead log and the next process commits them. Leftover agents can be removed.
func TestKilled(t *testing.T) {
	t.Parallel()
	for _, shardFormat := range []string{"parquet", "arrow"} {
		t.Run(shardFormat, func(t *testing.T) {
			t.Parallel()
			cfg := lettasim.Config{InputIDs: true, KeepAnswers: true}
			cfg.Latency = latencyOf(t, "20ms..200ms")
			sim := newSim(t, cfg)
			url := serveSim(t, sim)
			dir := filepath.Join(t.TempDir(), "run")
			args := []string{
				"collect", "--server", url, "--model", simModel, "--out", dir, "--format", shardFormat, "--max-in-flight", "16", "--samples", "1000",
				"-c", writeFile(t, "run.yaml", []byte("output: {shard_age: 1s}\n")),
				"--tasks", writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: 50})),
			}
			cmd := exec.CommandContext(t.Context(), "rollout", args...)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			// Two commits, and a third shard that is being written. The process is stopped while the
			// test looks: it could commit the shard before it is killed.
			middle := func() bool {
				commits, _ := filepath.Glob(filepath.Join(dir, "_commits", "0*.json"))
				open, _ := filepath.Glob(filepath.Join(dir, "data", ".tmp-*"))
				return len(commits) >= 2 && len(open) > 0 && sim.Stats().InFlight > 0
			}
			waitFor(t, "a run in the middle", func() bool {
				if !middle() {
					return false
				}
				if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Millisecond) // all threads have stopped
				if middle() {
					return true
				}
				if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
					t.Fatal(err)
				}
				return false
			})
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err == nil {
				t.Fatalf("the run ended by itself\n%s", stderr.String())
			}

			// The folder has committed shards, and orphans that are not data.
			log, err := sink.ReadLog(dir)
			if err != nil {
				t.Fatal(err)
			}
			if len(log.Commits) < 2 {
				t.Fatalf("%d commits are left", len(log.Commits))
			}
			waiting := int64(0)
			if r, err := sink.Verify(t.Context(), dir, sink.VerifyOptions{}); err != nil {
				t.Fatal(err)
			} else if waiting = r.WAL.Pending; waiting == 0 {
				t.Fatal("nothing waits in the write-ahead log: the test has lost its teeth")
			}
			v := mustRun(t, exit.OK, "verify", dir)
			if !strings.Contains(v.stdout, ": ok: ") || !regexp.MustCompile(`(?m)^rollout: data/\.tmp-\S+: orphan: no commit names it$`).MatchString(v.stderr) {
				t.Errorf("verify: %s%s", v.stdout, v.stderr)
			}
			got := readDataset(t, dir)
			answered := map[sampleID]bool{}
			for _, a := range sim.Answers() {
				answered[sampleID{a.Task, int32(a.Sample)}] = true
			}
			rows := 0
			for id, r := range got.rows {
				rows += len(r)
				if !answered[id] {
					t.Errorf("%v is data, and was never answered", id)
				}
			}
			keys := got.keys()
			if len(keys) == 0 || len(keys) != len(got.rows)+len(got.failures) {
				t.Errorf("%d keys in the commit log, %d samples in the shards", len(keys), len(got.rows)+len(got.failures))
			}
			for key, n := range keys {
				if n != 1 {
					t.Errorf("sample %s is in the commit log %d times", key, n)
				}
			}
			if lines := strings.Count(mustRun(t, exit.OK, "inspect", dir, "--json").stdout, "\n"); lines != rows {
				t.Errorf("inspect shows %d rows, there are %d", lines, rows)
			}

			// The server finishes the sends, and their agents stay.
			waitFor(t, "the sends to end", func() bool { return sim.Stats().InFlight == 0 })
			left := sim.Stats().AgentsAlive
			if left == 0 {
				t.Fatal("no agent is left: the test has lost its teeth")
			}
			c := mustRun(t, exit.OK, "clean", dir)
			if n := strings.Count(c.stdout, "\n"); int64(n) != left {
				t.Errorf("clean removed %d agents, %d were left", n, left)
			}
			if s := sim.Stats(); s.AgentsAlive != 0 {
				t.Errorf("%d agents remain after clean", s.AgentsAlive)
			}

			// The lock died with its process. A plain start is still refused, and the message has
			// the command to resume.
			if r := invoke(context.WithoutCancel(t.Context()), args...); r.code != exit.Folder || !strings.Contains(r.stderr, "rollout collect --resume --out "+dir) {
				t.Errorf("a second start: exit code %d\n%s", r.code, r.stderr)
			}
			after, err := os.ReadDir(filepath.Join(dir, "_commits"))
			if err != nil || len(after) != len(log.Commits) {
				t.Errorf("%d commits after all that, %v", len(after), err)
			}

			// The next process first commits the waiting samples. Samples that were in flight lost
			// their agents and are collected again.
			again := start(t, "collect", "--resume", "--out", dir)
			waitFor(t, "sends again", func() bool { return sim.Stats().InFlight > 0 })
			again.signal(t, os.Interrupt, "draining")
			if code := again.exit(t); code != exit.Interrupted {
				t.Fatalf("resumed: exit code %d\n%s", code, again.said(t))
			}
			if want := fmt.Sprintf("recovered: %s from the write-ahead log; ", format.Plural(waiting, "finished sample")); !strings.Contains(again.said(t), want) {
				t.Errorf("no output contains %q:\n%s", want, again.said(t))
			}
			mustRun(t, exit.OK, "verify", dir)
			whole := readDataset(t, dir).keys()
			for key, n := range whole {
				if n != 1 {
					t.Errorf("sample %s is in the commit log %d times", key, n)
				}
			}
			for key := range keys {
				if whole[key] == 0 {
					t.Errorf("sample %s was committed, and is lost", key)
				}
			}
			if n := len(whole); int64(n) < int64(len(keys))+waiting {
				t.Errorf("%d samples after %d that were committed and %d that waited", n, len(keys), waiting)
			}
			if s := sim.Stats(); s.AgentsAlive != 0 {
				t.Errorf("%d agents remain", s.AgentsAlive)
			}
		})
	}
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
