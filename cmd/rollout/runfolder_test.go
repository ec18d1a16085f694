package main

import (
	"bytes"
	"context"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
	"github.com/rollout-rl/rollout/collector"
)

// spooled is a checked task set of one task.
func spooled(t *testing.T, dir string) *taskSet {
	t.Helper()
	check := taskCheck{samples: 3, dir: dir, mode: 0o600}
	set, err := check.run(tasksOf(`{"id":"a","prompt":"Hi."}`))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(set.close)
	return set
}

func tasksOf(lines ...string) iter.Seq2[collector.Task, error] {
	return tasks.Read("-", strings.NewReader(strings.Join(lines, "\n")))
}

func TestRunFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "run")
	folder, err := beginRun(dir, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := folder.create(runInfo{Version: 1, ID: "one"}, spooled(t, dir)); err != nil {
		t.Fatal(err)
	}
	if h, held := locked(dir); !held || h.PID != os.Getpid() {
		t.Errorf("a run in progress is locked: %v, by %v; want by process %d", held, h, os.Getpid())
	}
	if _, err := beginRun(dir, 0o600); exit.Code(err) != exit.Locked {
		t.Errorf("a second run gives %d, want %d: %v", exit.Code(err), exit.Locked, err)
	}
	if err := folder.close(); err != nil {
		t.Fatal(err)
	}
	if h, held := locked(dir); held {
		t.Errorf("a run that has ended is locked by %v", h)
	}
	if _, err := beginRun(dir, 0o600); exit.Code(err) != exit.Folder {
		t.Errorf("a folder with a run gives %d, want %d: %v", exit.Code(err), exit.Folder, err)
	}
	info, err := readRun(dir)
	if err != nil || info.ID != "one" {
		t.Errorf("readRun = %q, %v; want one", info.ID, err)
	}
	stat, err := os.Stat(filepath.Join(dir, tasksFile))
	if err != nil || stat.Mode().Perm()&0o222 != 0 {
		t.Errorf("the snapshot can be written: %v, %v", stat.Mode(), err)
	}
}

// A start that ended before run.json was there left nothing to lose.
func TestRunFolderAfterABrokenStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{lockFile, tasksFile, ".tmp-run.json-1"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	folder, err := beginRun(dir, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := folder.create(runInfo{Version: 1, ID: "one"}, spooled(t, dir)); err != nil {
		t.Fatal(err)
	}
	if err := folder.close(); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, tasksFile)); err != nil || len(b) == 0 {
		t.Errorf("tasks = %q, %v", b, err)
	}
}

func TestCheckTasks(t *testing.T) {
	t.Parallel()
	var left []string
	check := taskCheck{samples: 4, skipBad: true, skipped: func(err error) { left = append(left, err.Error()) }, dir: t.TempDir(), mode: 0o600}
	set, err := check.run(tasksOf(
		"\xef\xbb\xbf"+`{"id":"a","prompt":"<b>&","samples":2}`,
		`{"id":"a","prompt":"again"}`,
		`{"id":7,"messages":["x","y"],"answer":true,"metadata":[1, 2],"agent":{"max_steps": 3}}`,
		`{"id":"c","prompt":null}`,
	))
	if err != nil {
		t.Fatal(err)
	}
	defer set.close()
	if set.tasks != 2 || set.samples != 6 || set.bad != 2 || len(left) != 2 {
		t.Errorf("tasks %d, samples %d, bad %d, left out %q; want 2, 6, 2 and two", set.tasks, set.samples, set.bad, left)
	}
	b, err := os.ReadFile(set.path)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"id":"a","messages":["<b>&"],"samples":2}
{"id":"7","messages":["x","y"],"answer":"true","metadata":[1,2],"agent":{"max_steps":3}}
`
	if got := string(b); got != want {
		t.Errorf("snapshot:\n%s\nwant:\n%s", got, want)
	}
	// The snapshot reads as what it was made of.
	again, err := check.run(tasks.Read(set.path, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer again.close()
	if again.digest != set.digest {
		t.Error("a snapshot of the snapshot is another one")
	}
}

// The number of complaints is bounded, their count is not.
func TestCheckTasksManyBad(t *testing.T) {
	t.Parallel()
	_, err := new(taskCheck).run(tasksOf(strings.Repeat("x\n", 100)))
	got := exit.Lines(err)
	if len(got) != maxComplaints+1 || got[maxComplaints].Error() != "and 80 more bad tasks" {
		t.Errorf("%d complaints, the last %v", len(got), got[len(got)-1])
	}
}

// A program run twice in one process shares nothing.
func TestRunIsAFunction(t *testing.T) {
	t.Parallel()
	for range 2 {
		var stdout, stderr bytes.Buffer
		code := run(context.Background(), []string{"config", "show", "--samples", "3"}, nil, &stdout, &stderr, func(string) string { return "" })
		if code != 0 || !strings.Contains(stdout.String(), "tasks.samples           3\n") || stderr.Len() != 0 {
			t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout.String(), stderr.String())
		}
	}
}
