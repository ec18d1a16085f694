// Package runfolder manages the folder of a run: its lock, its configuration, and the settings
// that its rows depend on.
//
//	run/
//	  lock           lock.go       one process at a time
//	  run.json       info.go       the configuration and the history, with a checksum
//	                 identity.go   settings that must not change, because rows depend on them
//	  tasks.jsonl    snapshot.go   the validated tasks; adding tasks on resume
//	                 tasklog.go    tasks that arrive during the run
//	  report.json    report.go     the report for programs; report.html is for people
//	  tokenizer/     tokenizer.go  the files of the tokenizer and the chat template
//	  scores/        scores.go     scores sets of rollout rescore; package sink owns their logs
//	  journal/       package journal: attempts, and the work that servers might still be doing
//	  logs/          one file per invocation
//	  the rest       package sink: the dataset
//
// For a new run, [Begin] locks the folder, and [Folder.Create] writes run.json and the tasks. For a
// resumed run, [Find] locks the folder and loads the settings. [Earlier.ReadTasks] merges the run's
// tasks with the given tasks, and [Changes] lists all other differences. [Folder.Update] writes the
// changes made by the invocation.
//
// run.json, tasks.jsonl, report.json and report.html are written to a temporary file, synced and
// renamed. Then the folder is synced. After a power failure, either the old file or the new file
// exists. The tasks.jsonl of a new run is durable before run.json is written. When tasks are added
// to a run, run.json is written first, with the digests of the old and the new tasks. run.json and
// tasks.jsonl are durable before the dataset and the journal are opened. A streaming run syncs
// tasks.jsonl before it reports a task as accepted. The lock and the logs are not synced.
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
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/sink/durable"
)

// Names of the files in a run's folder that belong to the command. The sink owns all other files.
const (
	RunFile    = "run.json"
	FleetFile  = "fleet.json" // a folder with this file is a fleet and not a run
	TasksFile  = "tasks.jsonl"
	LockFile   = "lock"
	ReportFile = "report.json"
	JournalDir = "journal"
	// SessionsDir contains the sessions of a run that drives a harness, until their samples are
	// committed. A tap has a folder of the same name in its spool.
	SessionsDir = "sessions"

	temporary = ".tmp-" // prefix of a file that is being written
)

// A Folder is a run folder that this process has locked.
type Folder struct {
	Dir  string
	Mode fs.FileMode // mode of files created in the folder
	lock *Lock
	made []string // folders that Begin created, innermost first
}

// CheckNew returns an error if a run cannot be collected into dir, because dir is not a new or an empty folder. It
// does not change the folder.
func CheckNew(dir string) error { return checkNew(dir, "continue it with: "+ResumeCommand(dir)) }

// checkNew is CheckNew with the hint that the error has if dir contains a run.
func checkNew(dir, hint string) error {
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
		return exit.Hint(exit.With(exit.Folder, fmt.Errorf("%s is a file, not a folder", dir)), "pass a new folder with --out")
	case err != nil:
		return exit.Hint(exit.With(exit.Storage, err), "pass a writable folder with --out")
	}
	var foreign []string
	for _, e := range entries {
		switch name := e.Name(); {
		case name == LockFile, name == TasksFile, strings.HasPrefix(name, temporary):
			// If there is no run.json, these files were left by a process that has ended, and
			// contain no data.
		case name == RunFile:
			if h, held := Locked(dir); held {
				return LockedError(dir, h, "wait until that process ends, or pass another folder with --out")
			}
			return exit.Hint(exit.With(exit.Folder, fmt.Errorf("%s already contains a run", dir)), hint)
		case name == FleetFile:
			return exit.Hint(exit.With(exit.Folder, fmt.Errorf("%s contains a fleet", dir)), "collect it with rollout work, or pass another folder with --out")
		default:
			foreign = append(foreign, name)
		}
	}
	if foreign != nil {
		shown := strings.Join(foreign[:min(3, len(foreign))], ", ")
		if len(foreign) > 3 {
			shown += ", …"
		}
		hint := "pass a new or empty folder with --out"
		if run := runAround(dir); run != "" {
			hint = "the folder is inside the run " + format.Shell(run) + "; pass another folder with --out, or continue that run with: " + ResumeCommand(run)
		}
		return exit.Hint(exit.With(exit.Folder, fmt.Errorf("%s is not empty, but contains no run (found %s)", dir, shown)), hint)
	}
	return nil
}

// Begin creates and locks the folder of a new run. [Folder.Abandon] removes it, unless
// [Folder.Create] was called.
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
		if Exists(dir) { // another process created the run between the check and the lock
			err = CheckNew(dir)
		}
		err = errors.Join(err, f.Clear())
	}
	if err != nil {
		return nil, exit.Hint(exit.With(exit.Storage, errors.Join(err, f.Abandon())), "pass a writable folder with --out")
	}
	return f, nil
}

// Create writes the task snapshot and then run.json. The snapshot and the folders that [Begin]
// created become durable first, so a folder that has a run.json also has its tasks.
func (f *Folder) Create(info Info, tasks *TaskSet) error {
	return f.create(info, tasks, durable.SyncDir)
}

// create implements Create. The function syncDir syncs a folder and needs permission to read it. If
// a folder is writable but not readable, the run continues without the sync.
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

// Abandon releases the lock. If no run was created, it first removes the files and folders that
// [Begin] created.
func (f *Folder) Abandon() error {
	if f.lock == nil {
		return nil
	}
	if Exists(f.Dir) {
		return f.close()
	}
	err := f.Clear()
	if f.made != nil {
		_ = os.Remove(f.TasksPath()) // the file exists if Create failed after writing it
		// Remove the lock file while its lock is held. A process that has already opened the file
		// then notices that its name is gone.
		err = errors.Join(err, os.Remove(filepath.Join(f.Dir, LockFile)))
		for _, dir := range f.made {
			_ = os.Remove(dir) // fails if another process put a file there
		}
	}
	return errors.Join(err, f.close())
}

// OpenRun locks the folder of an existing run and removes its temporary files.
func OpenRun(dir string, mode fs.FileMode) (*Folder, error) {
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

// Clear removes the temporary files that killed processes left behind.
func (f *Folder) Clear() error {
	entries, err := os.ReadDir(f.Dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), temporary) {
			err = errors.Join(err, os.Remove(filepath.Join(f.Dir, e.Name())))
		}
	}
	return err
}

// Exists reports whether dir is a run's folder, that is, whether it contains run.json.
func Exists(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, RunFile))
	return err == nil
}

// ResumeCommand returns the command that resumes the run in dir, or the worker whose spool it is.
func ResumeCommand(dir string) string {
	if info, err := Read(dir); err == nil && info.Fleet != nil {
		return "rollout work " + format.Shell(info.Fleet.Location) + " --spool " + format.Shell(dir)
	}
	return "rollout collect --resume --out " + format.Shell(dir)
}

// writeTasks turns the spool into the task snapshot by renaming it. Both files are in the run's
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

func (f *Folder) writeJSON(name string, v any) error {
	return writeFile(f.Dir, name, f.Mode, func(w io.Writer) error {
		enc := format.NewJSONEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	})
}

// TasksPath returns the path of the task snapshot.
func (f *Folder) TasksPath() string { return filepath.Join(f.Dir, TasksFile) }

func (f *Folder) close() error { return f.lock.Close() }

// Close releases the lock.
func (f *Folder) Close() error { return f.close() }

// writeFile writes dir/name atomically and durably, through a temporary file.
func writeFile(dir, name string, mode fs.FileMode, write func(io.Writer) error) error {
	if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.IsDir() {
		return exit.Hint(exit.With(exit.Storage, errors.New("a folder, not a file")), "pass the path of a file") // fail before write is called
	}
	f, err := createTemporary(dir, "", mode) // do not use name as a prefix, because name can already have the maximum length
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // fails if the file has been renamed
	if err := errors.Join(write(f), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), filepath.Join(dir, name)); err != nil {
		return err
	}
	return durable.SyncDir(dir)
}

// WriteNamed atomically writes the file at a path given by the user. The file contains a part of a run, so it
// gets the mode of the run's files, before the umask. If the path is a symbolic link, WriteNamed replaces the
// link's target. It writes directly to a pipe or a device such as /dev/null.
func WriteNamed(path string, mode fs.FileMode, write func(io.Writer) error) error {
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
	return writeFile(filepath.Dir(path), filepath.Base(path), mode, write)
}

func createTemporary(dir, prefix string, mode fs.FileMode) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir, temporary+prefix+rand.Text()), os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
}

// MkdirAll creates a folder that will contain files of the given mode. Missing parent folders get
// the mode that the umask allows.
func MkdirAll(dir string, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o777); err != nil {
		return err
	}
	err := os.Mkdir(dir, config.FolderMode(mode))
	if errors.Is(err, fs.ErrExist) {
		return nil // an existing folder keeps its mode
	}
	return err
}
