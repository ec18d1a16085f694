package main

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/human"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/plainjson"
)

// The files of a run's folder that belong to the command; the sink owns the rest.
const (
	runFile    = "run.json"
	tasksFile  = "tasks.jsonl"
	lockFile   = "lock"
	reportFile = "report.json"
	journalDir = "journal"

	temporary = ".tmp-" // how the name of a file begins that is being written
)

// runVersion is the version of run.json that is written: 2 added the checksum. Version 1
// is still read, a newer one is refused.
const runVersion = 2

// A runInfo is run.json: what a run was told, written before it starts and again
// before it is continued. It holds no secret.
type runInfo struct {
	Version   int          `json:"version"` // of this file: runVersion
	ID        string       `json:"id"`
	CreatedAt time.Time    `json:"created_at"`
	Rollout   buildVersion `json:"rollout"` // that began the run
	// Config is the resolved configuration of the last invocation, and ConfigSHA256
	// the digest of its JSON.
	Config       config.Values `json:"config"`
	ConfigSHA256 string        `json:"config_sha256"`
	// Identity is what a run has to keep for as long as it lives.
	Identity identity     `json:"identity"`
	Tasks    taskInfo     `json:"tasks"`
	Servers  []serverInfo `json:"servers"`         // of the last invocation
	Model    *modelInfo   `json:"model,omitempty"` // where a tokenizer was given
	// Invocations are the processes that collected into the run, the first one first.
	Invocations []invocation `json:"invocations"`
	// SHA256 is the checksum of the file; see encodeRun. Empty in version 1.
	SHA256 string `json:"sha256,omitempty"`
}

// An invocation is one process that collected into a run.
type invocation struct {
	StartedAt    time.Time    `json:"started_at"`
	Rollout      buildVersion `json:"rollout"`
	PID          int          `json:"pid"`
	Host         string       `json:"host"`
	ConfigSHA256 string       `json:"config_sha256"`
	Planned      int          `json:"planned"`
	RetryFailed  bool         `json:"retry_failed,omitempty"`
	Log          string       `json:"log"` // its file, relative to the folder
}

// lastLog is the log of the last invocation.
func (i *runInfo) lastLog() string { return i.Invocations[len(i.Invocations)-1].Log }

type taskInfo struct {
	File   string `json:"file"`
	SHA256 string `json:"sha256"` // of tasks.jsonl
	// GrewFrom is the digest that tasks.jsonl had before, where it has grown since the
	// run began. A process that died in between left that file.
	GrewFrom string `json:"grew_from,omitempty"`
	Tasks    int    `json:"tasks"`
	// Samples is the number of samples of all tasks; 0: the run is of a program that did
	// not say.
	Samples int `json:"samples,omitempty"`
	// Planned is the number of samples after the limit; Bad counts lines left out.
	Planned int `json:"planned"`
	Bad     int `json:"bad"`
}

type serverInfo struct {
	URL     string `json:"url"`
	Version string `json:"version"`
	// Model is what the server says about the model; nil where agents are imported
	// from a file that names it.
	Model *serverModel `json:"model,omitempty"`
}

// A serverModel is the part of a server's word about a model that decides what is
// sampled. Where the engine runs may change.
type serverModel struct {
	Handle        string `json:"handle"`
	Name          string `json:"name"`
	ContextWindow int64  `json:"context_window"`
	EndpointType  string `json:"endpoint_type,omitempty"`
}

// newRunID is a name that sorts by time and meets no other.
func newRunID(now time.Time) string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return now.UTC().Format("20060102-150405-") + hex.EncodeToString(b[:])
}

// A runFolder is a run's folder that this process owns.
type runFolder struct {
	dir  string
	mode fs.FileMode // of the files that are made in it
	lock *runLock
	made []string // the folders that beginRun made, the innermost first
}

// checkNewRun says whether a run could be created in dir, and changes nothing.
func checkNewRun(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, syscall.ENOTDIR):
		return exit.Hint(exit.With(exit.Folder, fmt.Errorf("%s: is a file, not a folder", dir)), "give a new folder with --out")
	case err != nil:
		return exit.With(exit.Storage, err)
	}
	var foreign []string
	for _, e := range entries {
		switch name := e.Name(); {
		case name == lockFile, name == tasksFile, strings.HasPrefix(name, temporary):
			// A start that ended before run.json left nothing to lose.
		case name == runFile:
			if h, held := locked(dir); held {
				return lockedError(dir, h, "wait for it, or give another folder with --out")
			}
			return exit.Hint(exit.With(exit.Folder, fmt.Errorf("%s: holds a run already", dir)),
				"continue it with: "+resumeCommand(dir))
		default:
			foreign = append(foreign, name)
		}
	}
	if foreign != nil {
		shown := strings.Join(foreign[:min(3, len(foreign))], ", ")
		if len(foreign) > 3 {
			shown += ", …"
		}
		return exit.Hint(exit.With(exit.Folder, fmt.Errorf("%s: is not empty and holds no run (%s)", dir, shown)),
			"give a new or empty folder with --out")
	}
	return nil
}

// beginRun makes the folder of a new run and locks it. Until create, abandon leaves
// nothing of it.
func beginRun(dir string, mode fs.FileMode) (*runFolder, error) {
	if err := checkNewRun(dir); err != nil {
		return nil, err
	}
	f := &runFolder{dir: dir, mode: mode}
	for parent := filepath.Clean(dir); ; parent = filepath.Dir(parent) {
		if _, err := os.Lstat(parent); err == nil || parent == filepath.Dir(parent) {
			break
		}
		f.made = append(f.made, parent)
	}
	err := mkdirAll(dir, mode)
	if err == nil {
		f.lock, err = lockRun(dir, mode)
	}
	if err == nil {
		if hasRun(dir) { // made by another process, between the check and the lock
			err = checkNewRun(dir)
		}
		err = errors.Join(err, f.clear())
	}
	if err != nil {
		return nil, exit.With(exit.Storage, errors.Join(err, f.abandon()))
	}
	return f, nil
}

// create makes the folder that of a run. The snapshot of the tasks is durable before
// run.json, so a folder with run.json has its tasks.
func (f *runFolder) create(info runInfo, tasks *taskSet) error {
	err := f.writeTasks(tasks)
	if err == nil {
		err = f.writeRun(info)
	}
	return exit.With(exit.Storage, err)
}

// abandon removes what beginRun made, where no run has come of it, and gives the lock up.
func (f *runFolder) abandon() error {
	if f.lock == nil {
		return nil
	}
	if hasRun(f.dir) {
		return f.close()
	}
	err := f.clear()
	if f.made != nil {
		// Under the lock: who opens the file now finds that it has no name any more.
		err = errors.Join(err, os.Remove(filepath.Join(f.dir, lockFile)))
		for _, dir := range f.made {
			_ = os.Remove(dir) // unless somebody put something there
		}
	}
	return errors.Join(err, f.close())
}

// openRun takes the lock of a folder that holds a run.
func openRun(dir string, mode fs.FileMode) (*runFolder, error) {
	if err := needRun(dir); err != nil {
		return nil, err
	}
	lock, err := lockRun(dir, mode)
	if err != nil {
		return nil, err
	}
	f := &runFolder{dir: dir, mode: mode, lock: lock}
	if err := f.clear(); err != nil {
		return nil, exit.With(exit.Storage, errors.Join(err, f.close()))
	}
	return f, nil
}

// clear removes what writeDurably left where a process died in it.
func (f *runFolder) clear() error {
	entries, err := os.ReadDir(f.dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), temporary) {
			err = errors.Join(err, os.Remove(filepath.Join(f.dir, e.Name())))
		}
	}
	return err
}

// hasRun reports whether dir is the folder of a run, by the file that makes it one.
func hasRun(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, runFile))
	return err == nil
}

// resumeCommand is what to type to continue the run in dir.
func resumeCommand(dir string) string { return "rollout collect --resume --out " + human.Shell(dir) }

// writeTasks makes tasks the snapshot of the run. They are where they were spooled: in
// the run's folder.
func (f *runFolder) writeTasks(tasks *taskSet) error {
	info, err := os.Stat(tasks.path)
	if err == nil {
		err = os.Chmod(tasks.path, info.Mode().Perm()&^0o222)
	}
	if err == nil {
		err = os.Rename(tasks.path, f.tasksPath())
	}
	if err != nil {
		return err
	}
	tasks.own, tasks.path = true, f.tasksPath()
	return syncDir(f.dir)
}

// writeJSON writes a file of the folder durably.
func (f *runFolder) writeJSON(name string, v any) error {
	return writeDurably(f.dir, name, f.mode, func(w io.Writer) error {
		enc := plainjson.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	})
}

// tasksPath is the snapshot of the tasks.
func (f *runFolder) tasksPath() string { return filepath.Join(f.dir, tasksFile) }

// close gives the folder up.
func (f *runFolder) close() error { return f.lock.close() }

// writeDurably makes dir/name appear whole: written aside, synced, renamed, and
// the folder synced.
func writeDurably(dir, name string, mode fs.FileMode, write func(io.Writer) error) error {
	f, err := createTemporary(dir, "", mode) // name may be as long as a name can be
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
	return syncDir(dir)
}

// createTemporary makes a file in dir that is to become another one. prefix says which.
func createTemporary(dir, prefix string, mode fs.FileMode) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir, temporary+prefix+rand.Text()), os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// mkdirAll makes a folder for files of that mode, and its parents as the umask has them.
func mkdirAll(dir string, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o777); err != nil {
		return err
	}
	err := os.Mkdir(dir, config.FolderMode(mode))
	if errors.Is(err, fs.ErrExist) {
		return nil // it stays as it is
	}
	return err
}

// needRun is an error unless dir is the folder of a run.
func needRun(dir string) error {
	_, err := readRun(dir)
	return err
}

// readRun reads run.json.
func readRun(dir string) (runInfo, error) {
	var info runInfo
	b, err := os.ReadFile(filepath.Join(dir, runFile))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return info, exit.Hint(exit.With(exit.Folder, fmt.Errorf("%s: is no run (it has no %s)", dir, runFile)), "give the folder that collect was given with --out")
	}
	if err != nil {
		return info, exit.With(exit.Storage, err)
	}
	path := filepath.Join(dir, runFile)
	summed, err := checkRunSum(b)
	if err == nil {
		err = json.Unmarshal(b, &info)
	}
	switch {
	case err != nil:
	case info.Version > runVersion:
		return info, exit.Hint(exit.With(exit.Folder, fmt.Errorf("%s: version %d; this program knows %d", path, info.Version, runVersion)),
			"use a newer rollout")
	case info.Version < 1 || summed != (info.Version > 1):
		err = fmt.Errorf("version %d, which is not what any rollout wrote", info.Version)
	}
	if err != nil {
		return info, exit.Hint(exit.With(exit.Verify, fmt.Errorf("%s: is damaged: %w", path, err)),
			"the file cannot be mended: put a copy back; the rows in the folder can be read without it, see sink/python")
	}
	return info, nil
}
