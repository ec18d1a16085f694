// Package runfolder keeps the folder of a run: who may collect into it, which configuration
// it has, and what its rows depend on.
//
//	run/
//	  lock           lock.go       one process at a time
//	  run.json       info.go       the configuration and the history, with a checksum
//	                 identity.go   what has to stay the same for its rows
//	  tasks.jsonl    snapshot.go   its checked tasks, and how they grow
//	                 tasklog.go    the tasks that come while the run goes on
//	  report.json    report.go     how it went, for programs; report.html is for people
//	  journal/       of package journal: attempts, what servers may still be doing
//	  logs/          one file per invocation
//	  the rest       of package sink: the dataset
//
// For a new run, [Begin] locks the folder and [Folder.Create] writes run.json and the tasks.
// For a run that is continued, [Find] locks the folder and fills in the settings,
// [Earlier.ReadTasks] merges the tasks of the run with those given now, [Changes] lists what
// else does not fit, and [Folder.Update] writes what the invocation changes.
//
// run.json, tasks.jsonl, report.json and report.html are written under a temporary name, synced
// and renamed, and then the folder is synced. A power cut leaves the old file or the new one.
// tasks.jsonl of a new run is durable before run.json is written. If the tasks of a run have
// grown, run.json is written first and has both digests. run.json and tasks.jsonl are durable
// before the dataset and the journal are opened. tasks.jsonl of a run that takes tasks as they
// come is synced before a task is called accepted. The lock and the log are not synced.
package runfolder

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/human"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/plainjson"
	"github.com/rollout-rl/rollout/sink/durable"
)

// The files of a run's folder that belong to the command; the sink owns the rest.
const (
	RunFile    = "run.json"
	TasksFile  = "tasks.jsonl"
	LockFile   = "lock"
	ReportFile = "report.json"
	JournalDir = "journal"

	temporary = ".tmp-" // begins the name of a file that is being written
)

// A Folder is a run's folder that this process has locked.
type Folder struct {
	Dir  string
	Mode fs.FileMode // of the files that are made in it
	lock *Lock
	made []string // the folders that Begin made, the innermost first
}

// CheckNew returns an error if a run cannot be created in dir. It changes nothing.
func CheckNew(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, syscall.ENOTDIR):
		for parent := dir; parent != filepath.Dir(parent); parent = filepath.Dir(parent) {
			if info, err := os.Stat(parent); err == nil && !info.IsDir() {
				dir = parent
			}
		}
		return exit.Hint(exit.With(exit.Folder, fmt.Errorf("%s: is a file, not a folder", dir)), "give a new folder with --out")
	case err != nil:
		return exit.Hint(exit.With(exit.Storage, err), "give a folder that can be made and written with --out")
	}
	var foreign []string
	for _, e := range entries {
		switch name := e.Name(); {
		case name == LockFile, name == TasksFile, strings.HasPrefix(name, temporary):
			// A process that ended before it wrote run.json left nothing to lose.
		case name == RunFile:
			if h, held := Locked(dir); held {
				return LockedError(dir, h, "wait for it, or give another folder with --out")
			}
			return exit.Hint(exit.With(exit.Folder, fmt.Errorf("%s: already holds a run", dir)),
				"continue it with: "+ResumeCommand(dir))
		default:
			foreign = append(foreign, name)
		}
	}
	if foreign != nil {
		shown := strings.Join(foreign[:min(3, len(foreign))], ", ")
		if len(foreign) > 3 {
			shown += ", …"
		}
		hint := "give a new or empty folder with --out"
		if run := Around(dir); run != "" {
			hint = "it lies in the run " + human.Shell(run) + ": give another folder with --out, or continue that run with: " + ResumeCommand(run)
		}
		return exit.Hint(exit.With(exit.Folder, fmt.Errorf("%s: is not empty and holds no run (%s)", dir, shown)), hint)
	}
	return nil
}

// Begin makes the folder of a new run and locks it. [Folder.Abandon] removes all of it again,
// unless [Folder.Create] was called.
func Begin(dir string, mode fs.FileMode) (*Folder, error) {
	if err := CheckNew(dir); err != nil {
		return nil, err
	}
	f := &Folder{Dir: dir, Mode: mode}
	for parent := filepath.Clean(dir); ; parent = filepath.Dir(parent) {
		if _, err := os.Lstat(parent); err == nil || parent == filepath.Dir(parent) {
			break
		}
		f.made = append(f.made, parent)
	}
	err := MkdirAll(dir, mode)
	if err == nil {
		f.lock, err = TakeLock(dir, mode)
	}
	if err == nil {
		if Exists(dir) { // another process made it between the check and the lock
			err = CheckNew(dir)
		}
		err = errors.Join(err, f.Clear())
	}
	if err != nil {
		return nil, exit.Hint(exit.With(exit.Storage, errors.Join(err, f.Abandon())), "give a folder that can be made and written with --out")
	}
	return f, nil
}

// Create writes the snapshot of the tasks and then run.json. The snapshot is durable first,
// so a folder with run.json has its tasks. So are the names of the folders that [Begin] made.
func (f *Folder) Create(info Info, tasks *TaskSet) error {
	return f.create(info, tasks, durable.SyncDir)
}

// create is Create. syncDir makes the names in a folder durable. It must open the folder,
// and a folder that allows new names may forbid that: then the run does without.
func (f *Folder) create(info Info, tasks *TaskSet, syncDir func(string) error) error {
	err := f.writeTasks(tasks)
	for _, dir := range f.made {
		if err != nil {
			break
		}
		if err = syncDir(filepath.Dir(dir)); errors.Is(err, fs.ErrPermission) {
			err = nil
		}
	}
	if err == nil {
		err = f.writeRun(info)
	}
	return exit.With(exit.Storage, err)
}

// Abandon releases the lock. If no run was created it first removes what [Begin] made.
func (f *Folder) Abandon() error {
	if f.lock == nil {
		return nil
	}
	if Exists(f.Dir) {
		return f.close()
	}
	err := f.Clear()
	if f.made != nil {
		_ = os.Remove(f.TasksPath()) // there if Create failed after it
		// The lock is still held: a process that opens the file now finds that its name is gone.
		err = errors.Join(err, os.Remove(filepath.Join(f.Dir, LockFile)))
		for _, dir := range f.made {
			_ = os.Remove(dir) // fails if somebody put something there
		}
	}
	return errors.Join(err, f.close())
}

// Open locks a folder that holds a run.
func Open(dir string, mode fs.FileMode) (*Folder, error) {
	if err := Need(dir); err != nil {
		return nil, err
	}
	lock, err := TakeLock(dir, mode)
	if err != nil {
		return nil, err
	}
	f := &Folder{Dir: dir, Mode: mode, lock: lock}
	if err := f.Clear(); err != nil {
		return nil, exit.With(exit.Storage, errors.Join(err, f.close()))
	}
	return f, nil
}

// Clear removes the temporary files that a killed process left.
func (f *Folder) Clear() error {
	entries, err := os.ReadDir(f.Dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), temporary) {
			err = errors.Join(err, os.Remove(filepath.Join(f.Dir, e.Name())))
		}
	}
	return err
}

// Exists reports whether dir is the folder of a run, which is whether it has a run.json.
func Exists(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, RunFile))
	return err == nil
}

// ResumeCommand returns the command that continues the run in dir.
func ResumeCommand(dir string) string { return "rollout collect --resume --out " + human.Shell(dir) }

// writeTasks renames the spooled tasks to the snapshot of the run. The spool is in the run's
// folder.
func (f *Folder) writeTasks(tasks *TaskSet) error {
	info, err := os.Stat(tasks.path)
	if err == nil && !tasks.grows {
		err = os.Chmod(tasks.path, info.Mode().Perm()&^0o222)
	}
	if err == nil {
		err = os.Rename(tasks.path, f.TasksPath())
	}
	if err != nil {
		return err
	}
	tasks.own, tasks.path = true, f.TasksPath()
	return durable.SyncDir(f.Dir)
}

// writeJSON writes v as a file of the folder, durably.
func (f *Folder) writeJSON(name string, v any) error {
	return WriteFile(f.Dir, name, f.Mode, func(w io.Writer) error {
		enc := plainjson.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	})
}

// TasksPath returns the path of the snapshot of the tasks.
func (f *Folder) TasksPath() string { return filepath.Join(f.Dir, TasksFile) }

// close releases the lock.
func (f *Folder) close() error { return f.lock.Close() }

// WriteFile writes dir/name so that it appears as a whole. It writes and syncs a temporary
// file, renames it and syncs the folder.
func WriteFile(dir, name string, mode fs.FileMode, write func(io.Writer) error) error {
	if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.IsDir() {
		return exit.Hint(exit.With(exit.Storage, errors.New("is a folder, not a file")), "give the path of a file") // before all the work
	}
	f, err := createTemporary(dir, "", mode) // without name, which may have the greatest length already
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // fails after the rename, as it should
	if err := errors.Join(write(f), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), filepath.Join(dir, name)); err != nil {
		return err
	}
	return durable.SyncDir(dir)
}

// WriteNamed writes the file that a person named: as a whole, in place of the file that a link
// of that name leads to. A pipe or a device of that name, such as /dev/null, is written to
// and stays.
func WriteNamed(path string, write func(io.Writer) error) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(write(f), f.Close())
	}
	if at, err := filepath.EvalSymlinks(path); err == nil {
		path = at
	}
	return WriteFile(filepath.Dir(path), filepath.Base(path), 0o666, write)
}

// createTemporary makes a temporary file in dir. prefix tells what it is for.
func createTemporary(dir, prefix string, mode fs.FileMode) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir, temporary+prefix+rand.Text()), os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
}

// MkdirAll makes a folder for files with the given mode. Its parents get the mode that the
// umask allows.
func MkdirAll(dir string, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o777); err != nil {
		return err
	}
	err := os.Mkdir(dir, config.FolderMode(mode))
	if errors.Is(err, fs.ErrExist) {
		return nil // its mode stays
	}
	return err
}
