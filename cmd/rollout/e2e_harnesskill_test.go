package main

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
)

// killsOf returns the number of kills of a test, and the program: ROLLOUT_KILLS, or a small number.
func killsOf(t *testing.T, short int) (kills int, bin string) {
	t.Helper()
	long := os.Getenv("ROLLOUT_KILLS")
	if long == "" {
		return short, "rollout" // the test binary is also the program
	}
	return must(strconv.Atoi(long))(t), must(buildProgram(filepath.Join(t.TempDir(), "rollout")))(t)
}

// A run that drives agent programs is killed at random moments and resumed each time. It ends with
// each sample once, and with the rows that it has without kills. After each kill, no process of an
// agent stays alive. At the end, no folder and no session is left. Some kills also end the
// supervisors of the agents, so that only the next process can clean up.
func TestKillHarness(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("finds the processes in /proc: Linux only")
	}
	kills, bin := killsOf(t, 12)
	if testing.Short() {
		kills = 4
	}
	r := randomOf(t)
	prompts := agentPrompts(6 + 3*kills/2)
	whole := newHarnessRun(t, prompts, 6, "")
	whole.start(t, "rollout", "--quiet").ends(t, 3*time.Minute, exit.OK)
	want := verified(t, whole.dir).trainedOf()

	h := newHarnessRun(t, prompts, 6, ", shard_age: 1s")
	h.gate.latency = func() time.Duration { return time.Duration(5+rand.IntN(100)) * time.Millisecond }
	var committed []string
	lives, killed := 0, 0
	for ; ; lives++ {
		args := []string{"--json", "--preflight", "connect"}
		if runfolder.Exists(h.dir) {
			args = append(args, "--resume")
		}
		p := h.start(t, bin, args...)
		h.live(t, r, p, killed >= kills)
		if strings.Contains(p.said(), "panic:") || strings.Contains(p.said(), "fatal error:") {
			t.Fatalf("life %d: %s", lives, p.said())
		}
		if p.code != -1 {
			if p.code != exit.OK {
				t.Fatalf("life %d: exit code %d\n%s", lives, p.code, p.said())
			}
			break
		}
		if !runfolder.Exists(h.dir) {
			continue
		}
		killed++
		keys := committedKeys(t, h.dir)
		for _, key := range committed {
			if _, ok := slices.BinarySearch(keys, key); !ok {
				t.Errorf("life %d: sample %s was committed and is gone", lives, key)
			}
		}
		committed = keys
	}
	if killed < kills {
		t.Errorf("the run was over after %d kills, want %d: make it longer", killed, kills)
	}
	got := verified(t, h.dir)
	if keys := got.once(t); len(keys) != h.tasks || len(got.rows) != h.tasks {
		t.Errorf("%d samples, %d have rows, want %d", len(keys), len(got.rows), h.tasks)
	}
	sameSamples(t, got.trainedOf(), want)
	checkTrained(t, got, h.engine.Calls())
	h.nothingLeft(t)
	t.Logf("%d samples, %d kills; %d calls, %d without kills", h.tasks, killed, h.gate.count(), whole.gate.count())
}

// rollout clean removes what a killed run left: processes, folders and sessions. Then the run can be
// resumed.
func TestCleanHarness(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("finds the processes in /proc: Linux only")
	}
	const tasks = 3
	h := newHarnessRun(t, agentPrompts(tasks), tasks, "")
	h.gate.hold = tasks + 1 // no call is answered
	p := h.start(t, "rollout", "--quiet")
	waitFor(t, "calls of all agents", func() bool { return h.gate.sessions() >= tasks || !p.alive() })
	h.killHard(p)
	clean := func(args ...string) string {
		t.Helper()
		p := startProgram(t, "rollout", []string{"TMPDIR=" + h.temp}, append([]string{"clean", h.dir}, args...)...)
		p.ends(t, time.Minute, exit.OK)
		return p.said()
	}
	contains(t, clean("--dry-run"), "found what was left of 3 attempts and 3 sessions of run")
	if folders := must(filepath.Glob(filepath.Join(h.temp, "*")))(t); len(folders) != tasks || len(h.sessions(t)) != tasks {
		t.Errorf("a dry run left the folders %q and the sessions %q", folders, h.sessions(t))
	}
	contains(t, clean(), "removed what was left of 3 attempts and 3 sessions of run")
	h.nothingLeft(t)
	close(h.gate.opened)
	h.start(t, "rollout", "--quiet", "--resume").ends(t, time.Minute, exit.OK)
	if got := verified(t, h.dir); len(got.once(t)) != tasks {
		t.Errorf("%d samples, want %d", len(got.once(t)), tasks)
	}
	h.nothingLeft(t)
}

// killHard kills a process and its supervisors. It stops the supervisors first, so that they cannot
// do anything when the process dies.
func (h *harnessRun) killHard(p *process) {
	supervisors := childrenOf(p.cmd.Process.Pid)
	for _, pid := range supervisors {
		_ = syscall.Kill(pid, syscall.SIGSTOP) // it might have ended
	}
	_ = syscall.Kill(p.cmd.Process.Pid, syscall.SIGKILL)
	for _, pid := range supervisors {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	<-p.ended
}

// live lets a process work and kills it at a random moment, or waits for its end.
func (h *harnessRun) live(t *testing.T, r *rand.Rand, p *process, last bool) {
	t.Helper()
	if last {
		p.wait(t, 3*time.Minute)
		return
	}
	if r.IntN(5) > 0 { // otherwise during the start
		for before, began := h.gate.count(), time.Now(); p.alive() && h.gate.count() == before && time.Since(began) < time.Minute; {
			time.Sleep(2 * time.Millisecond)
		}
	}
	select {
	case <-p.ended:
		return
	case <-time.After(time.Duration(r.IntN(400)) * time.Millisecond):
	}
	if r.IntN(4) > 0 {
		p.kill()
		waitFor(t, "the end of the agents", func() bool { return processesIn(h.temp) == nil })
		return
	}
	h.killHard(p)
}

// childrenOf returns the children of a process.
func childrenOf(pid int) (children []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		b, _ := os.ReadFile(file)
		_, rest, _ := bytes.Cut(b, []byte(") "))
		if fields := strings.Fields(string(rest)); len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			if child, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
				children = append(children, child)
			}
		}
	}
	return children
}
