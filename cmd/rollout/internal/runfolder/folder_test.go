package runfolder

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/frame"
)

func spooled(t *testing.T, dir string) *TaskSet {
	t.Helper()
	check := TaskCheck{samples: 3, Dir: dir, Mode: 0o600}
	set, err := check.Run(tasksOf(`{"id":"a","prompt":"Hi."}`))
	must(t, err)
	t.Cleanup(set.Close)
	return set
}

func tasksOf(lines ...string) iter.Seq2[collector.Task, error] {
	return tasks.Read("-", strings.NewReader(strings.Join(lines, "\n")))
}

func TestRunFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "run")
	folder := begin(t, dir, 0o600)
	must(t, folder.Create(Info{Version: 1, ID: "one"}, spooled(t, dir)))
	if h, held := Locked(dir); !held || h.PID != os.Getpid() {
		t.Errorf("a run in progress is locked: %v, by %v; want by process %d", held, h, os.Getpid())
	}
	if _, err := Begin(dir, 0o600); exit.Code(err) != exit.Locked {
		t.Errorf("a second run gives %d, want %d: %v", exit.Code(err), exit.Locked, err)
	}
	must(t, folder.close())
	if h, held := Locked(dir); held {
		t.Errorf("a run that has ended is locked by %v", h)
	}
	if _, err := Begin(dir, 0o600); exit.Code(err) != exit.Folder {
		t.Errorf("a folder with a run gives %d, want %d: %v", exit.Code(err), exit.Folder, err)
	}
	info, err := Read(dir)
	if err != nil || info.ID != "one" {
		t.Errorf("readRun = %q, %v; want one", info.ID, err)
	}
	stat, err := os.Stat(filepath.Join(dir, TasksFile))
	if err != nil || stat.Mode().Perm()&0o222 != 0 {
		t.Errorf("the snapshot can be written: %v, %v", stat.Mode(), err)
	}
}

// A file of a newer program is not damaged, so it must not be repaired.
func TestReadErrorOfNewerFiles(t *testing.T) {
	t.Parallel()
	for _, newer := range []error{sink.ErrNewer, frame.ErrNewer} {
		err := ReadError("run1", fmt.Errorf("wal/1: %w", newer))
		if want := "run1: wal/1: " + newer.Error(); err.Error() != want || exit.Code(err) != exit.Folder {
			t.Errorf("%v, code %d; want %s, code %d", err, exit.Code(err), want, exit.Folder)
		}
	}
}

// TestNamesOfANewRunAreSynced checks that a new run survives a power failure: each created folder's
// name is synced before the run exists. If a sync fails, no run is created.
func TestNamesOfANewRunAreSynced(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := filepath.Join(root, "a", "run")
	folder := begin(t, dir, 0o600)
	failure := errors.New("the disk is gone")
	if err := folder.create(Info{Version: 1}, spooled(t, dir), func(string) error { return failure }); !errors.Is(err, failure) || Exists(dir) {
		t.Errorf("created with %v although no name can be synced", err)
	}
	must(t, folder.Abandon())

	folder = begin(t, dir, 0o600)
	var synced []string
	err := folder.create(Info{Version: 1}, spooled(t, dir), func(parent string) error {
		if Exists(dir) {
			t.Errorf("%s is synced after run.json was written", parent)
		}
		synced = append(synced, parent)
		return &fs.PathError{Op: "open", Path: parent, Err: fs.ErrPermission} // as in a folder that is writable and not readable
	})
	if want := []string{filepath.Join(root, "a"), root}; err != nil || !slices.Equal(synced, want) {
		t.Errorf("synced %q, %v; want %q", synced, err, want)
	}
	must(t, folder.close())
}

// TestRunFolderAfterABrokenStart checks that a start that ended before run.json leaves a usable
// folder.
func TestRunFolderAfterABrokenStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{LockFile, TasksFile, ".tmp-run.json-1"} {
		must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	folder := begin(t, dir, 0o600)
	must(t, folder.Create(Info{Version: 1, ID: "one"}, spooled(t, dir)))
	must(t, folder.close())
	if b, err := os.ReadFile(filepath.Join(dir, TasksFile)); err != nil || len(b) == 0 {
		t.Errorf("tasks = %q, %v", b, err)
	}
}

func TestCheckTasks(t *testing.T) {
	t.Parallel()
	var left []string
	check := TaskCheck{samples: 4, skipBad: true, skipped: func(err error) { left = append(left, err.Error()) }, Dir: t.TempDir(), Mode: 0o600}
	set, err := check.Run(tasksOf(
		"\xef\xbb\xbf"+`{"id":"a","prompt":"<b>&","samples":2}`,
		`{"id":"a","prompt":"again"}`,
		`{"id":7,"messages":["x","y"],"answer":true,"metadata":[1, 2],"agent":{"max_steps": 3}}`,
		`{"id":"c","prompt":null}`,
	))
	must(t, err)
	defer set.Close()
	if set.Tasks != 2 || set.Samples != 6 || set.Bad != 2 || len(left) != 2 {
		t.Errorf("tasks %d, samples %d, bad %d, left out %q; want 2, 6, 2 and two", set.Tasks, set.Samples, set.Bad, left)
	}
	b, err := os.ReadFile(set.path)
	must(t, err)
	const want = `{"id":"a","messages":["<b>&"],"samples":2}
{"id":"7","messages":["x","y"],"answer":"true","metadata":[1,2],"agent":{"max_steps":3}}
`
	if got := string(b); got != want {
		t.Errorf("snapshot:\n%s\nwant:\n%s", got, want)
	}
	// The snapshot has the tasks that it was made from.
	again, err := check.Run(tasks.Read(set.path, nil))
	must(t, err)
	defer again.Close()
	if again.digest != set.digest {
		t.Error("a snapshot of the snapshot is another one")
	}
}

// TestCheckTasksManyBad checks that the number of named bad tasks is bounded, and that all are
// counted.
func TestCheckTasksManyBad(t *testing.T) {
	t.Parallel()
	_, err := new(TaskCheck).Run(tasksOf(strings.Repeat("x\n", 100)))
	got := exit.Lines(err)
	if len(got) != maxComplaints+1 || got[maxComplaints].Error() != "and 80 more bad tasks" {
		t.Errorf("%d complaints, the last %v", len(got), got[len(got)-1])
	}
}

// TestReadNeedsChecksum checks that run.json without a checksum at its end is damaged.
func TestReadNeedsChecksum(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, RunFile), []byte(`{"version": 1}`), 0o600))
	if _, err := Read(dir); exit.Code(err) != exit.Verify || !strings.Contains(err.Error(), "no checksum") {
		t.Errorf("Read: %v, want exit code %d", err, exit.Verify)
	}
}

// must fails the test at err.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func begin(t *testing.T, dir string, mode fs.FileMode) *Folder {
	t.Helper()
	folder, err := Begin(dir, mode)
	must(t, err)
	return folder
}

func readRun(t *testing.T, dir string) Info {
	t.Helper()
	info, err := Read(dir)
	must(t, err)
	return info
}

func identityOf(t *testing.T, l *config.Loader, model *Model) Identity {
	t.Helper()
	id, err := IdentityOf(l, model, nil)
	must(t, err)
	return id
}

func fillNothing(string) error { return nil }

// TestImportIntoAFolder checks that an import replaces a folder with leftovers of a dead process,
// but not a folder in which another process is starting a run.
func TestImportIntoAFolder(t *testing.T) {
	t.Parallel()
	left := filepath.Join(t.TempDir(), "left")
	must(t, os.Mkdir(left, 0o700))
	for _, name := range []string{LockFile, TasksFile, ".tmp-tasks.jsonl-1"} {
		must(t, os.WriteFile(filepath.Join(left, name), nil, 0o600))
	}
	if err := Import(left, "run", 0o600, []string{"a.jsonl"}, fillNothing); err != nil || !Exists(left) {
		t.Errorf("a folder with what a dead process left: %v", err)
	}

	taken := filepath.Join(t.TempDir(), "taken")
	must(t, os.Mkdir(taken, 0o700))
	lock, err := TakeLock(taken, 0o600)
	must(t, err)
	err = Import(taken, "run", 0o600, []string{"a.jsonl"}, fillNothing)
	if exit.Code(err) != exit.Locked {
		t.Errorf("a folder that is locked: %v, want %d", err, exit.Locked)
	}
	if _, err := os.Stat(filepath.Join(taken, LockFile)); err != nil {
		t.Errorf("the lock of a live process: %v", err)
	}
	must(t, lock.Close())
	entries, err := os.ReadDir(filepath.Dir(taken))
	if err = errors.Join(err, Import(taken, "run", 0o600, []string{"a.jsonl"}, fillNothing)); err != nil || len(entries) != 1 {
		t.Errorf("the same, without its process: %v, beside it %v", err, entries)
	}
}

// TestImportsAtOnce checks that one of several simultaneous imports creates the run. The others
// report that it exists, and leave no files.
func TestImportsAtOnce(t *testing.T) {
	t.Parallel()
	for range 20 {
		dir := filepath.Join(t.TempDir(), "run")
		errs := make([]error, 8)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() { errs[i] = Import(dir, "run", 0o600, []string{"a.jsonl"}, fillNothing) })
		}
		all.Wait()
		made := 0
		for _, err := range errs {
			switch {
			case err == nil:
				made++
			case exit.Code(err) != exit.Folder && exit.Code(err) != exit.Locked:
				t.Errorf("exit status %d: %v", exit.Code(err), err)
			}
		}
		if entries, err := os.ReadDir(filepath.Dir(dir)); err != nil || made != 1 || len(entries) != 1 {
			t.Fatalf("%d made the run, beside it %v, %v", made, entries, err)
		}
	}
}
